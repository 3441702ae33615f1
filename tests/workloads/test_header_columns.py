"""Headers of single requests."""

from pathlib import Path

import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.fields import parse_header_columns
from servetwin.workloads.readers.native import trace_text
from servetwin.workloads.reading import read_trace
from tests.support.prompt_files import lines, written
from tests.support.trace_rows import AZURE

ROW = {"prompt": "p", "arrival_s": 0.0, "prompt_tokens": 1, "output_tokens": 1}


def test_columns_and_their_headers() -> None:
    assert parse_header_columns("tenant=X-Tenant, X-Key") == {
        "tenant": "X-Tenant",
        "X-Key": "X-Key",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a column without a name"),
        ("=X", "a column without a name"),
        ("a=", "'' is no header"),
        ("a=X Y", "'X Y' is no header"),
        ("a=X:", "'X:' is no header"),
        ("a=X,a=Y", "'a' twice"),
        ("a=X,b=x", "x is set by the load tester, or set twice"),
        ("a=Content-Length", "Content-Length is set by the load tester"),
        ("a=host", "host is set by the load tester"),
    ],
)
def test_what_is_no_header_is_refused(text: str, said: str) -> None:
    with pytest.raises(TraceError, match=r"^--header-columns") as refused:
        parse_header_columns(text)
    assert said in str(refused.value)


@pytest.mark.parametrize("value", ["", " ", "a\r\nX: y", "ä", "a\x00", 1.5, True, [], {"a": 1}])
def test_a_value_that_is_no_header_is_never_repeated(value: object, tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", lines({**ROW, "k": "fine"}, {**ROW, "k": value}))
    with pytest.raises(TraceError) as refused:
        read_trace(path, header_columns={"k": "X-Key"})
    said = "field 'k': no value of a header: wants one line of ASCII (null)"
    assert str(refused.value) == f"{path}:2: {said}"


@pytest.mark.parametrize("row", [ROW, {**ROW, "k": None}])
def test_a_missing_value_is_one_line(row: dict[str, object], tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", lines(row))
    with pytest.raises(TraceError, match=r"t.jsonl:1: field 'k': missing; --header-columns"):
        read_trace(path, header_columns={"k": "X-Key"})


def test_a_format_without_such_columns_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "azure.csv", AZURE)
    with pytest.raises(TraceError, match=r"azure\.csv: --header-columns: wants prompts"):
        read_trace(path, header_columns={"k": "X-Key"})


def test_no_header_is_ever_written(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", lines({**ROW, "k": "secret"}))
    trace = read_trace(path, header_columns={"k": "X-Key"})
    assert trace.requests[0].headers == {"X-Key": "secret"}
    assert not any("unknown" in note for note in trace.notes)
    assert "secret" not in trace_text(trace)


@pytest.mark.parametrize(
    "text",
    [
        '{"prompt": 5, "k": "secret"}',
        '{"k": "secret", "prompt": "p"}\n{"k": "secret"}',
        '{"k": "secret", "arrival_s": 0, "prompt_tokens": 1}',
        "prompt,k\np,secret,more\n",
    ],
)
def test_no_error_beside_a_header_repeats_it(text: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t", text)
    with pytest.raises(TraceError) as refused:
        read_trace(path, header_columns={"k": "X-Key"})
    assert "secret" not in str(refused.value)
