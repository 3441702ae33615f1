"""Fields of the user's own."""

from pathlib import Path

import pytest

from servetwin.loadtest.body.extra_body import parse_extra_body, parse_sampling
from servetwin.workloads.errors import LoadTestError


def test_an_object_is_taken_from_the_line_or_a_file(tmp_path: Path) -> None:
    text = '{"user": "ä", "logit_bias": {"5": -1}}'
    (tmp_path / "extra.json").write_text(text, encoding="utf-8")
    fields = {"user": "ä", "logit_bias": {"5": -1}}
    assert parse_extra_body(text) == parse_extra_body(f"@{tmp_path}/extra.json") == fields


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "--extra-body: not JSON ("),
        ("{top_p: 1}", "--extra-body: not JSON ("),
        ("[1]", "--extra-body: JSON, but no object; write"),
        ("@/nowhere/x.json", "--extra-body @/nowhere/x.json: cannot be read (No such file"),
        ('{"model": "m"}', "the load test sets 'model' itself; see --model"),
        ('{"max_tokens": 4}', "the load test sets 'max_tokens' itself; see --output-tokens"),
        ('{"stream": false}', "the load test sets 'stream' itself; see --no-stream"),
        ('{"messages": []}', "the load test sets 'messages' itself; see --trace"),
        ("[" * 100_000, "--extra-body: not JSON ("),
    ],
)
def test_what_cannot_be_taken_is_one_line(text: str, said: str) -> None:
    with pytest.raises(LoadTestError) as refused:
        parse_extra_body(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    for data in (b"{", b"\xff\xfe", b" " * (2 << 20)):
        path.write_bytes(data)
        with pytest.raises(LoadTestError, match=f"--extra-body @{path}: "):
            parse_extra_body(f"@{path}")


def test_sampling_parameters_are_numbers() -> None:
    found = parse_sampling("temperature=0.7, top_k=5,seed=3")
    assert found == {"temperature": 0.7, "top_k": 5, "seed": 3}
    assert [type(value) for value in found.values()] == [float, int, int]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("temperature", "--sampling: 'temperature' is not KEY=VALUE"),
        ("temprature=1", "--sampling: unknown 'temprature'; did you mean 'temperature'?"),
        ("top_k=1.5", "--sampling: top_k=1.5: not a whole number"),
        ("temperature=hot", "--sampling: temperature=hot: not a number"),
        ("temperature=nan", "--sampling: temperature=nan: not a number"),
        ("temperature=1e309", "--sampling: temperature=1e309: not a number"),
    ],
)
def test_sampling_that_cannot_be_read_is_one_line(text: str, said: str) -> None:
    with pytest.raises(LoadTestError) as refused:
        parse_sampling(text)
    assert str(refused.value).startswith(said)
