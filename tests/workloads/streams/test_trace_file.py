"""What is read in blocks is what is read row by row: requests, notes and errors."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.workloads import reading as first_requests
from servetwin.workloads.errors import TraceError
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.reading import read_first, read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.streams import blocks
from servetwin.workloads.streams.streamed_trace import Chosen, StreamedTrace
from servetwin.workloads.streams.trace_file import TraceFile
from servetwin.workloads.trace import Trace
from tests.support.trace_rows import AZURE, BURST_6, BURST_8, VIDUR, Write

ALL = Chosen()
Outcome = tuple[tuple[Request, ...], tuple[str, ...]] | str


def whole(path: Path, max_bad_rows: int = 0) -> Outcome:
    try:
        trace = read_trace(path, max_bad_rows=max_bad_rows)
    except TraceError as error:
        return str(error)
    return trace.requests, trace.notes


def streamed(path: Path, max_bad_rows: int = 0, chosen: Chosen = ALL) -> Outcome:
    try:
        trace = StreamedTrace.open(TraceFile(path, None, max_bad_rows), chosen)
        return tuple(trace), trace.notes
    except TraceError as error:
        return str(error)


ODD = [
    "", "x", "-1", "+5", " 7 ", "007", "1e3", "99999999999", "1.5", ".5", "5.", "nan", "inf",
    "0x1F", "1_0", "²", '"5"', "0", "5\r", "5\x00", "5,6", "\udc80", "2023-02-30 00:00:00",
    "2023-11-16 24:00:00", "2023-11-16 18:15", "9999-11-16 18:15:46", "2023-11-16T18:15:46Z",
    "2023-11-16 18:15:46.1234567890", "2023-11-16 18:15:46+25:00", "\n", " ", "a\u00a0b",
]  # fmt: skip
"""Cells that stand where a plain one should."""


def azure_stamp(place: int) -> str:
    return f"2023-11-{16 + place // 3600:02} 18:{place // 60 % 60:02}:{place % 60:02}.{place % 10}"


@st.composite
def csv_files(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(["azure", "vidur", "burst"]))
    headers = {text: rows.splitlines()[0] for text, rows in
               (("azure", AZURE), ("vidur", VIDUR), ("burst", BURST_6))}  # fmt: skip
    columns = headers[name].split(",")
    zone = draw(st.sampled_from(["", "", "+00:00", "-05:30"]))
    rows = [columns]
    for place in range(draw(st.integers(1, 40))):
        counts = [str(draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, 9)))
                  for _ in columns[1:]]  # fmt: skip
        stamp = azure_stamp(place) + zone if name == "azure" else f"{place}.{place % 7}"
        if name == "burst":
            counts[0], counts[-1] = "GPT-4", draw(st.sampled_from(["API log", "", "é"]))
        rows.append([stamp, *counts])
    for _ in range(draw(st.integers(0, 2))):
        row = rows[draw(st.integers(1, len(rows) - 1))]
        row[draw(st.integers(0, len(row) - 1))] = draw(st.sampled_from(ODD))
    ending = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    return ending.join(",".join(row) for row in rows) + draw(st.sampled_from(["", ending]))


NATIVE_ODD: list[tuple[str, Any]] = [
    ("prompt_tokens", 0), ("prompt_tokens", 1.0), ("prompt_tokens", None), ("output_tokens", 0),
    ("output_tokens", "5"), ("arrival_s", -1), ("arrival_s", True), ("priority", -3),
    ("priority", 2**40), ("samples", 0), ("tenant", "a\\b"), ("tenant", 5), ("status", "failed"),
    ("unknown", 1), ("request_id", "é"), ("ttft_slo_s", float("nan")), ("session_id", "s"),
    ("estimated_output_tokens", 4), ("prefix_block_ids", [1]), ("block_tokens", 16),
]  # fmt: skip


@st.composite
def native_files(draw: st.DrawFn) -> str:
    header = draw(st.sampled_from([[], [{"schema": "servetwin-trace-1", "source": "made"}]]))
    named = draw(st.booleans())
    records: list[dict[str, Any]] = [
        {"arrival_s": 0.1 * place, "prompt_tokens": 5, "output_tokens": 3}
        | ({"request_id": f"r{place}"} if named else {})
        for place in range(draw(st.integers(1, 40)))
    ]
    for _ in range(draw(st.integers(0, 2))):
        name, value = draw(st.sampled_from(NATIVE_ODD))
        records[draw(st.integers(0, len(records) - 1))][name] = value
    lines = [json.dumps(record) for record in [*header, *records]]
    for _ in range(draw(st.integers(0, 1))):
        lines.insert(draw(st.integers(1, len(lines))), draw(st.sampled_from(["", "{", "[]", "{}"])))
    return "\n".join(lines)


@given(st.one_of(csv_files(), native_files()), st.sampled_from([0, 1, 99]))
def test_requests_notes_and_errors_are_those_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory, text: str, max_bad_rows: int
) -> None:
    path = tmp_path_factory.mktemp("traces") / "some.txt"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    expected = whole(path, max_bad_rows)
    assume("out of order" not in str(expected))
    assume("duplicate" not in str(expected))  # a stream does not compare ids with each other
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", 100)
        found = streamed(path, max_bad_rows)
    assert found == expected


@pytest.mark.parametrize("text", [AZURE, VIDUR, BURST_6, "\ufeff" + AZURE, "\n\n" + VIDUR])
@pytest.mark.parametrize("zipped", [False, True])
def test_plain_files_are_read_as_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, zipped: bool
) -> None:
    path = tmp_path / "some.csv"
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    expected = whole(path)
    monkeypatch.setattr("servetwin.workloads.streams.csv_formats.CsvFormat.row", None)
    assert streamed(path) == expected


def test_what_we_write_is_read_as_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = tuple(
        Request(f"r{n}", 0.1 * n, 5 + n, 7, tenant="a" if n % 2 else None, priority=n % 3)
        for n in range(50)
    )
    write_trace(Trace(requests, "made"), tmp_path / "t.jsonl")
    monkeypatch.setattr("servetwin.workloads.streams.trace_file.NativeFormat.row", None)
    assert streamed(tmp_path / "t.jsonl") == (requests, ())


def test_a_file_of_failed_rows_has_no_requests(write: Write) -> None:
    path = write("\n".join([AZURE.splitlines()[0], AZURE.splitlines()[-1]]))
    assert streamed(path) == whole(path) == f"{path}:1: no requests; 1 failed row left out"


def error_of(path: Path) -> str:
    outcome = streamed(path)
    assert isinstance(outcome, str)
    return outcome


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (AZURE + "\n2023-11-16 18:15:47,5,5", ":5: earlier than the row before it"),
        (BURST_8, ":1: column 'Session ID': the rows of a session follow each other"),
        ("num_prefill_tokens,num_decode_tokens\n5,5\n", ":1: column 'arrived_at' is missing"),
        ('[{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}]', ": a JSON array is read"),
        ('{"id": "x", "conversations": []}', "is read whole; use servetwin replay"),
        ('{"schema": "servetwin-trace-1", "timed": false}\n', "a trace without times"),
        ("", ":1: empty"),
        (AZURE.splitlines()[0], ":1: no requests"),
    ],
)
def test_what_cannot_be_streamed_is_one_line(write: Write, text: str, error: str) -> None:
    path = write(text)
    found = error_of(path)
    assert found.startswith(str(path))
    assert error in found
    assert "\n" not in found


def test_a_row_of_a_mooncake_session_is_named(write: Write) -> None:
    rows: Sequence[dict[str, Any]] = [
        {"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]},
        {"session_id": "s", "input_length": 9, "output_length": 1},
    ]
    path = write("\n".join(map(json.dumps, rows)))
    assert error_of(path).startswith(f"{path}:2: field 'session_id': the rows of a session")


def test_mooncake_rows_keep_their_ids(write: Write) -> None:
    row = {"timestamp": 500, "input_length": 600, "output_length": 1, "hash_ids": [4, 9]}
    path = write(json.dumps(row))
    assert streamed(path) == whole(path)


HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_requests, "LEAST_ROWS", 1)


def azure(*rows: tuple[int, Any]) -> str:
    stamps = (f"2024-05-10 00:00:{at:02},9,{output}\n" for at, output in rows)
    return HEADER + "".join(stamps)


def test_rows_after_the_limit_are_not_read(write: Write) -> None:
    path = write(azure((0, 5), (1, 5), (2, 5)) + "no row at all")
    with pytest.raises(TraceError, match=":5: field"):
        read_first(path, None)
    assert [r.arrival_s for r in read_first(path, 2)] == [0.0, 1.0]
    assert len(TraceOptions(path=path, limit=3).read()) == 3
    with pytest.raises(TraceError, match=":5: field"):
        TraceOptions(path=path, limit=3, end_s=9.0).read()


def test_a_limit_beyond_the_end_reads_all(write: Write) -> None:
    path = write(azure((0, 5), (1, 5)))
    assert read_first(path, 9) == read_first(path, None)
    assert read_first(path, 2) == read_first(path, None)


def test_failed_rows_do_not_count(write: Write) -> None:
    path = write(azure((0, 5), (1, 0), (2, 0), (3, 5), (4, 0), (5, 7)) + "bad")
    assert [r.output_tokens for r in TraceOptions(path=path, limit=2).read()] == [5, 5]


def test_a_bad_row_before_the_limit_is_the_error_of_the_whole(write: Write) -> None:
    path = write(azure((0, 5), (1, "x"), (2, 5), (3, 5)))
    with pytest.raises(TraceError, match=":3: field 'GeneratedTokens'"):
        read_first(path, 3)


@pytest.mark.parametrize("later", [(0, 5), (1, 5)])
def test_rows_out_of_order_are_sorted_with_those_to_come(
    write: Write, later: tuple[int, int]
) -> None:
    path = write(azure((5, 5), (3, 5), later))
    first = TraceOptions(path=path, limit=2).read()
    whole = read_first(path, None)
    assert first.requests == whole.requests[:2]


def test_followers_want_the_whole_trace(write: Write) -> None:
    rows = [{"request_id": f"r{n}", "arrival_s": n, "prompt_tokens": 5, "output_tokens": 5}
            for n in range(3)]  # fmt: skip
    rows[0]["parent_id"] = "r2"
    path = write("\n".join(map(json.dumps, rows)))
    assert read_first(path, 1) == read_first(path, None)
