"""Each format becomes the canonical fields; what was done to the rows is in the notes."""

import gzip
import json
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads import rows as json_array
from servetwin.workloads.errors import TraceError
from servetwin.workloads.fields import parse_header_columns
from servetwin.workloads.readers.native import trace_text
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.rows import ReadingLimits, numbered_rows
from tests.support.prompt_files import lines, written
from tests.support.trace_rows import AZURE, Write, shared, shared_trace

MOONCAKE = """{"timestamp": 3000, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 3000, "input_length": 512, "output_length": 7, "hash_ids": [0]}
"""
NATIVE = """{"source": "mine", "block_tokens": 4, "clock_s": 2, "notes": ["by hand"], "sha256": "0"}
{"arrival_s": 1, "prompt_tokens": 6, "output_tokens": 2, "prefix_block_ids": [7, 8], "colour": 1}
{"arrival_s": 2.5, "prompt_tokens": 6, "output_tokens": 0, "status": "failed", "request_id": "f"}
{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 1, "parent_id": "f", "priority": null}
"""


def test_mooncake(write: Write) -> None:
    trace = read_trace(write(MOONCAKE))
    assert trace.requests == (
        Request("some:1", 3.0, 600, 5, (0, 1), 512, source_line=1),
        Request("some:2", 3.0, 512, 7, (0,), 512, source_line=2),
    )
    assert trace.clock_s is None
    assert trace.notes == ("100.0% of rows share the stamp of the row before",)


def test_native(write: Write) -> None:
    trace = read_trace(write(NATIVE))
    assert trace.requests == (
        Request("mine:3", 0.0, 5, 1, block_tokens=4),
        Request("mine:1", 1.0, 6, 2, (7, 8), 4),
    )
    assert (trace.source, trace.clock_s) == ("mine", 2.0)
    assert trace.notes == (
        "by hand",
        "unknown fields left out: colour",
        "1 failed row left out",
        "1 row out of order: sorted by arrival",
    )


def test_a_file_without_header_is_its_own_source(write: Write) -> None:
    trace = read_trace(write('\n{"arrival_s": 1, "prompt_tokens": 6, "output_tokens": 2}\n'))
    assert trace.requests == (Request("some:2", 1.0, 6, 2, source_line=2),)


@pytest.mark.parametrize("text", [AZURE, MOONCAKE, NATIVE])
def test_gzip_is_seen_by_its_bytes_and_a_byte_order_mark_is_skipped(
    write: Write, text: str
) -> None:
    plain = read_trace(write(text))
    path = write("")
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    assert read_trace(path) == plain


def test_rows_out_of_order_are_sorted_stably_and_counted(write: Write) -> None:
    rows = [(5, "a"), (1, "b"), (5, "c"), (1, "d"), (6, "e")]
    text = "".join(
        f'{{"arrival_s": {at}, "request_id": "{name}", "prompt_tokens": 1, "output_tokens": 1}}\n'
        for at, name in rows
    )
    trace = read_trace(write(text))
    assert "".join(r.request_id for r in trace) == "bdace"
    assert trace.notes[0] == "2 rows out of order: sorted by arrival"


def test_ids_that_do_not_fit_are_cut_and_counted(write: Write) -> None:
    row = '{"timestamp": %d, "input_length": 600, "output_length": 5, "hash_ids": %s}\n'
    lists = [[0, 1, 2], [0], [0, 1], []]
    trace = read_trace(write("".join(row % pair for pair in enumerate(lists))))
    assert [r.prefix_block_ids for r in trace] == [(0, 1), (0,), (0, 1), ()]
    assert trace.notes == ("1 row whose ids do not fit the prompt: extra ids cut",)


def test_no_requests_but_failed_ones(write: Write) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,1,0\n"
    with pytest.raises(TraceError, match=r"no requests; 1 failed row left out$"):
        read_trace(write(text))


@pytest.mark.parametrize(
    ("name", "clock_s"),
    [
        ("azure/AzureLLMInferenceTrace_conv.csv.gz", None),
        ("mooncake/conversation_trace.jsonl.gz", 3.0),
        ("mooncake/arxiv_trace_window_93.jsonl", 3.056),
    ],
)
def test_clock_of_the_shared_traces(name: str, clock_s: float | None) -> None:
    assert shared_trace(name).clock_s == clock_s


@pytest.mark.slow
def test_spreading_the_ties_of_a_real_trace() -> None:
    path = shared("mooncake/conversation_trace.jsonl.gz")
    tied = shared_trace("mooncake/conversation_trace.jsonl.gz")
    spread = read_trace(path, spread_ties=True, seed=7)
    assert spread == read_trace(path, spread_ties=True, seed=7)
    assert spread != read_trace(path, spread_ties=True, seed=8)
    assert [r.request_id for r in spread] == [r.request_id for r in tied]
    moved_s = np.subtract([r.arrival_s for r in spread], [r.arrival_s for r in tied])
    assert 0 <= moved_s.min() < 0.01
    assert 2.99 < moved_s.max() < 3.0
    assert spread.notes[-1] == "ties spread over 3 s (seed 7)"


CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:15:46.68,4,1\n" * 10
ARRAY = json.dumps([{"prompt": "a"}] * 11)
"""Eleven rows on one line."""


@pytest.mark.parametrize("text", [CSV, ARRAY])
def test_rows_are_counted_wherever_their_lines_end(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    assert len(read_trace(path, limits=ReadingLimits(rows=11, seconds=60))) >= 10
    with pytest.raises(TraceError, match=r"trace: more than 10 rows; take a part of it$"):
        read_trace(path, limits=ReadingLimits(rows=10, seconds=60))


def test_reading_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", count().__next__)  # a second for each row
    rows = ReadingLimits(rows=9, seconds=3).checked(Path("t"), enumerate("abcdef", 1))
    assert [next(rows) for _ in range(3)] == [(1, "a"), (2, "b"), (3, "c")]
    with pytest.raises(TraceError, match=r"^t: 3 rows took more than 3 s; take a part of it$"):
        next(rows)


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


VALUES = st.recursive(
    st.integers() | st.text() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def rows(text: str) -> tuple[bool, list[tuple[int, str]]]:
    is_array, numbered = numbered_rows(StringIO(text))
    return is_array, list(numbered)


@given(st.lists(VALUES, min_size=1, max_size=8), st.sampled_from([None, 1]), st.integers(1, 9))
def test_elements_are_cut_where_they_end(values: list[Any], indent: int | None, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "CHUNK_CHARACTERS", size)
        is_array, found = rows(json.dumps(values, indent=indent) + "\n")
    assert is_array
    assert [json.loads(text) for _, text in found] == values


def test_rows_have_the_line_on_which_they_begin() -> None:
    assert rows('\n[\n {"a":\n 1},\n\n {"b": 2}]\n') == (
        True,
        [(3, '{"a":\n 1}'), (6, '{"b": 2}')],
    )


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ('[{"a": 1}, {"b": ', '{"b":'),
        ('[{"a": 1}', '{"a": 1}'),
        ('[{"a": 1}] {"b": 2}', '] {"b": 2}'),
        ('[{"a": 1}, oops]', "oops]"),
        ("[", "[ without ]"),
    ],
)
def test_what_is_no_array_ends_in_a_row_that_is_no_json(text: str, last: str) -> None:
    found = rows(text)[1]
    assert found[-1] == (1, last)


def test_an_element_without_an_end_is_not_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "CHUNK_CHARACTERS", 10)
    monkeypatch.setattr(json_array, "LONGEST_ELEMENT", 100)
    ((_, row),) = rows('["' + 1000 * "x")[1]
    assert 100 <= len(row) < 500


@pytest.mark.parametrize("text", ["", "\n \n", "a,b\n1,2\n", '{"a": 1}\n', "\n\nx\n"])
def test_other_files_are_lines(text: str) -> None:
    is_array, found = rows(text)
    lines = [(line, row) for line, row in enumerate(text.split("\n"), 1) if row.strip()]
    assert not is_array
    assert [(line, row.strip()) for line, row in found if row.strip()] == lines
