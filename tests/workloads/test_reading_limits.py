"""Limits of a reading: rows and seconds, in any text format."""

import json
from itertools import count
from pathlib import Path

import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.reading import read_trace
from servetwin.workloads.rows import ReadingLimits

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
