"""Rows of parts side by side come in one order, a few pieces at a time."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.long_runs import partitioned_run, row_tables
from servetwin.sim.long_runs.partitioned_run import chained, merged
from servetwin.sim.long_runs.row_tables import SCHEMAS, Spool

Ends = list[tuple[float, int]]


def spooled_steps(folder: Path, parts: list[Ends]) -> list[Path]:
    folders = []
    for number, ends in enumerate(parts):
        folders.append(folder / str(number))
        spool = Spool(folders[-1])
        columns: dict[str, list[float]] = {n: [0] * len(ends) for n in SCHEMAS["steps"].names}
        columns |= {"end_s": [end for end, _ in ends], "replica": [r for _, r in ends]}
        if ends:
            spool.write("steps", pa.table(columns, schema=SCHEMAS["steps"]))
        spool.close()
    return folders


def ends_of(table: pa.Table) -> Ends:
    return list(zip(table["end_s"].to_pylist(), table["replica"].to_pylist(), strict=True))


@given(st.lists(st.lists(st.integers(0, 6).map(float), max_size=30), min_size=1, max_size=4))
def test_rows_come_by_their_end_and_then_by_replica(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[float]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_tables, "PIECE_ROWS", 3)
        ends = [sorted((end, part + 4 * (n % 2)) for n, end in enumerate(times))
                for part, times in enumerate(parts)]  # fmt: skip
        folders = spooled_steps(tmp_path_factory.mktemp("spool"), ends)
        found = [row for table in merged(folders, "steps") for row in ends_of(table)]
    assert found == sorted(row for part in ends for row in part)


def test_few_pieces_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tables, "PIECE_ROWS", 10)
    parts = [[(float(end), part) for end in range(500)] for part in range(3)]
    longest = max(len(table) for table in merged(spooled_steps(tmp_path, parts), "steps"))
    assert longest <= 3 * 2 * 10


def test_parts_that_follow_each_other_are_opened_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = spooled_steps(tmp_path, [[(1.0, 0)], [], [(2.0, 0)]])
    tables = chained(folders, "steps")
    assert ends_of(next(tables)) == [(1.0, 0)]
    monkeypatch.setattr(partitioned_run, "spooled", None)
    with pytest.raises(TypeError):
        next(tables)
