"""A limit stops the reader, where later rows cannot matter."""

import json
from typing import Any

import pytest

from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.workloads import reading as first_requests
from servetwin.workloads.errors import TraceError
from servetwin.workloads.reading import read_first
from tests.support.trace_rows import Write

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
