"""Exact lengths by a local tokenizer; keys and their values as text."""

import sys
from pathlib import Path

import pytest

from servetwin.workloads.errors import LoadTestError, PolicyError, TraceError
from servetwin.workloads.program.key_values import key_value, key_values
from servetwin.workloads.readers.prompt_records import ESTIMATED
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.tokenizer import LocalTokenizer
from servetwin.workloads.trace import Trace
from tests.support.prompt_files import ANSWERS, QUESTIONS, chats, lines, sharegpt, written
from tests.support.small_tokenizer import small_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> LocalTokenizer:
    return LocalTokenizer(small_tokenizer(tmp_path))


def test_texts_count_with_the_first_token_and_answers_without(
    tokenizer: LocalTokenizer, tmp_path: Path
) -> None:
    trace = read_trace(sharegpt(tmp_path))
    counted = tokenizer.counted(trace)
    assert [r.prompt_tokens for r in counted] == tokenizer.lengths(QUESTIONS, special=True)
    assert [r.prompt_tokens for r in counted] == [1 + 13, 1 + 14, 1 + 11]
    assert [r.output_tokens for r in counted] == tokenizer.lengths(ANSWERS, special=False)
    assert [r.prompt for r in counted] == QUESTIONS
    assert ESTIMATED in trace.notes
    assert ESTIMATED not in counted.notes
    assert counted.notes[-1] == f"lengths counted by {tmp_path / 'tokenizer.json'}"


def test_chats_count_their_contents(tokenizer: LocalTokenizer, tmp_path: Path) -> None:
    counted = tokenizer.counted(read_trace(chats(tmp_path)))
    assert [r.prompt_tokens for r in counted] == [3 + 13, 3 + 14, 3 + 11]
    assert [r.output_tokens for r in counted] == [5, 6, 7]


def test_many_texts_of_both_kinds_keep_their_order(
    tokenizer: LocalTokenizer, tmp_path: Path
) -> None:
    rows = [
        {"prompt": [{"role": "user", "content": "a " * n}] if n % 3 else "a " * n}
        for n in range(1, 700)
    ]
    counted = tokenizer.counted(read_trace(written(tmp_path / "x", lines(*rows))))
    assert [r.prompt_tokens for r in counted] == [n + (n % 3 == 0) for n in range(1, 700)]


def test_lengths_without_a_text_stay(tokenizer: LocalTokenizer) -> None:
    requests = (Request("a", 0.0, 77, 5), Request("b", 1.0, 77, 5, prompt="why"))
    counted = tokenizer.counted(Trace(requests, "mixed"))
    assert [r.prompt_tokens for r in counted] == [77, 2]


def test_a_folder_stands_for_the_file_in_it(tmp_path: Path) -> None:
    small_tokenizer(tmp_path)
    assert LocalTokenizer(tmp_path).lengths(["the"], special=False) == [1]


def test_what_is_no_tokenizer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers")
    bad = written(tmp_path / "bad.json", '{"model": {}}')
    for path, said in [
        (bad, "not a tokenizer ("),
        (tmp_path / "none.json", "no such file; give a tokenizer.json or its folder"),
        (tmp_path, "no such file; give a tokenizer.json or its folder"),
    ]:
        with pytest.raises(TraceError, match=r"^--tokenizer ") as refused:
            LocalTokenizer(path)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TraceError, match=r"wants the package tokenizers: pip install 'servetwin\["):
        LocalTokenizer(bad)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("a=1", ("a", "1")),
        (" a = 1 ", ("a", "1")),
        ("a=b=c", ("a", "b=c")),
        ("a=", ("a", "")),
    ],
)
def test_the_first_equals_sign_parts_key_and_value(text: str, pair: tuple[str, str]) -> None:
    assert key_value(text, "--set") == pair


def test_several_are_parted_by_commas() -> None:
    assert key_values("", "--x") == {}
    assert key_values("a=1,b=2,,", "--x") == {"a": "1", "b": "2"}


def test_a_key_that_is_given_twice_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"^--x: a is given twice; give it once$"):
        key_values("a=1,b=2,,a=1,", "--x")


def test_a_wrong_text_names_the_place_and_the_form() -> None:
    with pytest.raises(PolicyError, match=r"^--set: 'a' is not KEY=VALUE$"):
        key_value("a", "--set")
    with pytest.raises(
        PolicyError, match=r"^--set: 'a=1\\r\\n2' has several lines; write KEY=VALUE"
    ):
        key_value("a=1\r\n2\n", "--set")
    with pytest.raises(LoadTestError, match=r"^--slo: 'ttft' is not LIMIT=TIME$"):
        key_values("e2e=1s, ttft", "--slo", LoadTestError, "LIMIT=TIME")
