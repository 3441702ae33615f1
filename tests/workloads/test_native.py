"""Our own format: what is written comes back, whole or not at all."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from servetwin.workloads.errors import TraceError
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.rows import ReadingLimits
from servetwin.workloads.trace import Trace
from tests.support.prompt_files import chats, sharegpt

TRACE = Trace((Request("a", 0.0, 5, 2, (1, 2), 4), Request("b", 1.5, 4, 1, (1,), 4)), "mine", 0.5)

counts = st.integers(1, 2**31 - 1)
times = st.floats(0, 1e10)
labels = st.none() | st.text(max_size=8)


@st.composite
def requests(draw: st.DrawFn, row: int) -> Request:
    prompt_tokens = draw(st.integers(1, 60))
    block_tokens = draw(st.sampled_from([None, 4, 16]))
    blocks = prompt_tokens // block_tokens if block_tokens else 0
    output_tokens = draw(counts)
    return Request(
        f"r{row} {draw(st.text(max_size=4))}",
        draw(times),
        prompt_tokens,
        output_tokens,
        tuple(draw(st.lists(st.integers(0, 2**80), min_size=blocks, max_size=blocks))),
        block_tokens,
        session_id=draw(labels),
        turn=draw(st.none() | st.integers(0, 9)),
        delay_s=draw(st.none() | times),
        shared_prefix_tokens=draw(st.none() | counts),
        reasoning_tokens=draw(st.none() | st.integers(0, output_tokens)),
        model=draw(labels),
        kind=draw(labels),
        tenant=draw(labels),
        priority=draw(st.integers(-5, 5)),
        modal=draw(st.none() | st.dictionaries(st.text(max_size=3), counts, max_size=2)),
        source_line=draw(st.none() | counts),
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    rows = [draw(requests(row)) for row in range(draw(st.integers(1, 5)))]
    clock_s = draw(st.none() | st.floats(1e-6, 60))
    return Trace(
        tuple(sorted(rows, key=lambda r: r.arrival_s)), draw(st.text()), clock_s, ("a note",)
    )


@given(trace=traces(), zipped=st.booleans())
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, trace: Trace, zipped: bool) -> None:
    path = tmp_path_factory.mktemp("native") / ("t.jsonl.gz" if zipped else "t.jsonl")
    write_trace(trace, path)
    again = read_trace(path)
    assert again.requests == trace.requests
    assert (again.source, again.clock_s) == (trace.source, trace.clock_s)


def test_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(TRACE, path)
    assert path.read_text().splitlines() == [
        '{"schema": "servetwin-trace-1", "source": "mine", "block_tokens": 4, "clock_s": 0.5}',
        '{"request_id": "a", "arrival_s": 0.0, "prompt_tokens": 5, "output_tokens": 2,'
        ' "prefix_block_ids": [1, 2]}',
        '{"request_id": "b", "arrival_s": 1.5, "prompt_tokens": 4, "output_tokens": 1,'
        ' "prefix_block_ids": [1]}',
    ]


def test_gzip_holds_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.gz", "b.jsonl.gz"):
        write_trace(TRACE, tmp_path / name)
    zipped = (tmp_path / "a.jsonl.gz").read_bytes()
    assert zipped == (tmp_path / "b.jsonl.gz").read_bytes()
    assert gzip.decompress(zipped) == (tmp_path / "a.jsonl").read_bytes()


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("old")

    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(TraceError, match="cannot be written: No space left on device"):
        write_trace(TRACE, path)
    assert [file.name for file in tmp_path.iterdir()] == ["t.jsonl"]
    assert path.read_text() == "old"


def test_a_trace_without_requests_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="nothing to write"):
        write_trace(Trace((), "x"), tmp_path / "t.jsonl")
    assert not list(tmp_path.iterdir())


def test_nowhere_to_write(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be written: No such file or directory"):
        write_trace(TRACE, tmp_path / "none" / "t.jsonl")


def test_real_prompts_come_back(tmp_path: Path) -> None:
    for write in (sharegpt, chats):
        trace = read_trace(write(tmp_path))
        write_trace(trace, tmp_path / "again.jsonl")
        again = read_trace(tmp_path / "again.jsonl")
        assert (again.requests, again.timed) == (trace.requests, False)


HEADER = '{"schema": "servetwin-trace-1", "source": "mine"}'
PIECES = (
    '{"request_id": "x", "arrival_s": 1.0',
    '"prompt_tokens": 1, "output_tokens": 1}',
    '{"request_id": "y", "arrival_s": 1, "prompt_tokens": 1, "output_tokens": 1},'
    '{"request_id": "z", "arrival_s": 1, "prompt_tokens": 1, "output_tokens": 1}',
    '{"request_id": "a}',
    '{", "arrival_s": 1, "prompt_tokens": 1, "output_tokens": 1}',
    "[]",
    "3",
)


@st.composite
def plain_rows(draw: st.DrawFn) -> str:
    """Return a row of the usual fields, now and then a wrong one."""
    count = st.integers(1, 9) | st.sampled_from([0, -1, True, 2.0, 2**31, "5", None])
    row = {
        "request_id": draw(st.sampled_from("abcdefghij") | st.sampled_from(["", "},{", "\n", 7])),
        "arrival_s": draw(times | st.sampled_from([3, -1.0, float("nan"), 1e11, "1", None])),
        "prompt_tokens": draw(count),
        "output_tokens": draw(count),
    }
    return json.dumps(row, ensure_ascii=draw(st.booleans()))


def outcome(path: Path, lines: list[str]) -> tuple[object, ...]:
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    try:
        trace = read_trace(path, max_bad_rows=len(lines))
    except TraceError as error:
        return (str(error),)
    return (*trace.requests, *trace.notes)


@example(lines=list(PIECES[:3]))
@example(lines=[*PIECES[3:5], PIECES[2]])
@given(lines=st.lists(plain_rows() | st.sampled_from(PIECES), max_size=8))
def test_rows_read_at_once_are_those_read_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("parts") / "t.jsonl"
    first = '{"request_id": "first", "arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1'
    at_once = outcome(path, [first + "}", *lines])
    assert at_once == outcome(path, [first + ', "model": null}', *lines])


def test_rows_before_an_error_come_first(tmp_path: Path) -> None:
    row = '{"request_id": "%d", "arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}'
    lines = [HEADER, *(row % number for number in range(9))]
    lines[3] = lines[3].replace('"output_tokens": 1', '"output_tokens": -1')
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(TraceError, match=r"t.jsonl:4: field 'output_tokens': negative \(-1\)$"):
        read_trace(path, limits=ReadingLimits(rows=6, seconds=60.0))
    path.write_text("\n".join([*lines[:3], *lines[4:], "no row"]))
    assert len(read_trace(path, most_rows=8)) == 8
