"""Rows that come in pieces of any size and leave in groups of one size, as Parquet has them."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from servetwin.sim.core.recorder import STEP_ROW
from servetwin.sim.records.metrics import REQUEST_COLUMNS
from servetwin.sim.records.run import HANDOVER_COLUMNS, PAUSE_COLUMNS

GROUP_ROWS = 1 << 16
_TEXTS = ("request_id", "status", "error")

Take = Callable[[pa.Table], None]


def _column_type(name: str) -> pa.DataType:
    if name in _TEXTS:
        return pa.string()
    return pa.float64() if name.endswith("_s") else pa.int64()


def _schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(name, _column_type(name)) for name in names])


SCHEMAS = {
    "requests": _schema(REQUEST_COLUMNS),
    "steps": pa.schema(
        [(name, pa.from_numpy_dtype(STEP_ROW[name])) for name in STEP_ROW.names or ()]
    ),
    "pauses": _schema(PAUSE_COLUMNS),
    "handovers": _schema(HANDOVER_COLUMNS),
}
"""Of the tables of a run, by name."""


class RowGroups:
    """Collects rows and gives them to ``take`` in groups of ``GROUP_ROWS``, the last one smaller.

    So what becomes of them does not depend on the pieces in which they came.
    """

    def __init__(self, take: Take) -> None:
        self._take = take
        self._pieces: list[pa.Table] = []
        self._rows = 0

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        self._pieces.append(table)
        self._rows += len(table)
        if self._rows >= GROUP_ROWS:
            rows = self._together()
            whole = len(rows) - len(rows) % GROUP_ROWS
            for first in range(0, whole, GROUP_ROWS):
                self._take(rows.slice(first, GROUP_ROWS).combine_chunks())
            self._pieces, self._rows = [rows.slice(whole)], len(rows) - whole

    def close(self) -> None:
        """Give what is left."""
        if self._rows:
            self._take(self._together().combine_chunks())
        self._pieces, self._rows = [], 0

    def _together(self) -> pa.Table:
        return pa.concat_tables(self._pieces)


class ParquetRows:
    """Writes tables to a file, each as one row group; the file has its name once it is whole."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._draft = path, path.with_name(f".{path.name}.tmp")
        self._writer = pq.ParquetWriter(self._draft, schema)

    def write(self, table: pa.Table) -> None:
        """Write a row group."""
        self._writer.write_table(table, row_group_size=max(1, len(table)))

    def close(self) -> None:
        """Give the file its name."""
        self._writer.close()
        self._draft.replace(self._path)

    def abandon(self) -> None:
        """Remove what was written."""
        self._writer.close()
        self._draft.unlink(missing_ok=True)
