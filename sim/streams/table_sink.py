"""Where a recorder's rows go as tables: to a spool of files, or to the tables of a run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc

from servetwin.sim.records.metrics import REQUEST_COLUMNS, Columns
from servetwin.sim.records.run import NotWritten
from servetwin.sim.streams.row_groups import SCHEMAS

PIECE_ROWS = 1 << 12
"""Of a spool, which is read again piece by piece, often many spools side by side."""
NUMBERED = SCHEMAS["requests"].append(pa.field("row", pa.int64()))
"""Requests with their row in the whole run."""


class TableSink:
    """Gives the rows of a ``FlushingRecorder`` to ``take``, by the name of their table."""

    def __init__(self, take: Callable[[str, pa.Table], None]) -> None:
        self._take = take
        self.latest_end_s = float("-inf")
        """When the last of the steps so far ended."""

    def add_requests(self, columns: Columns) -> None:
        """Take requests, with their ``row``."""
        named = {name: columns[name] for name in (*REQUEST_COLUMNS, "row")}
        self._take("requests", pa.table(named, schema=NUMBERED))

    def add_steps(self, columns: Columns) -> None:
        """Take rows of steps."""
        self.latest_end_s = max(self.latest_end_s, float(columns["end_s"].max()))
        self._take("steps", pa.table(columns, schema=SCHEMAS["steps"]))

    def add_pauses(self, stamps: list[list[float]]) -> None:
        """Take preemptions."""
        self._take("pauses", _stamps("pauses", stamps))

    def add_handovers(self, stamps: list[list[float]]) -> None:
        """Take moves between servers."""
        self._take("handovers", _stamps("handovers", stamps))


def _stamps(name: str, stamps: list[list[float]]) -> pa.Table:
    schema = SCHEMAS[name]
    rows = [[*stamp, *[None] * (len(schema) - len(stamp))] for stamp in stamps]
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


class Spool:
    """Files of tables that will be read once, in order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, ipc.RecordBatchStreamWriter] = {}

    def write(self, name: str, table: pa.Table) -> None:
        """Append rows to a table. Raises ``NotWritten``."""
        path = spool_file(self._folder, name)
        try:
            if name not in self._writers:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._writers[name] = ipc.new_stream(path, table.schema)
            self._writers[name].write_table(table, max_chunksize=PIECE_ROWS)
        except OSError as error:
            raise not_written(path, error) from error

    def close(self) -> None:
        """End the files. Raises ``NotWritten``."""
        for name, writer in self._writers.items():
            try:
                writer.close()
            except OSError as error:
                raise not_written(spool_file(self._folder, name), error) from error


def not_written(path: Path, error: OSError) -> NotWritten:
    """Return the error for a file of a stream that cannot be written."""
    reason = error.strerror or str(error)
    return NotWritten(f"{path}: could not be written ({reason}); the run is not kept")


def spool_file(folder: Path, name: str) -> Path:
    """Return the file of a table in a spool; it is missing where the table has no rows."""
    return folder / f"{name}.arrows"


def spooled(folder: Path, name: str) -> Iterator[pa.Table]:
    """Yield the pieces of a table in the order in which they were written."""
    path = spool_file(folder, name)
    if path.exists():
        with ipc.open_stream(path) as pieces:
            for piece in pieces:
                yield pa.Table.from_batches([piece])
