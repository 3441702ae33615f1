"""The CSV formats whose rows say all about themselves, so that they can be read in blocks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from servetwin.workloads.errors import TraceError
from servetwin.workloads.fields import MAX_COUNT, MAX_SECONDS
from servetwin.workloads.readers.published_csv import FORMATS, Header, Kind, as_request, differs
from servetwin.workloads.rows import Rows
from servetwin.workloads.streams.blocks import BlockFormat, LineBlock, ParsedRow

Cells = Mapping[str, Any]
"""Values by column: arrays of numbers, stamps in nanoseconds since 1970, lists of texts."""

_STAMP = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?"
_FORMS = {
    "count": r"^\d{1,10}$",
    "seconds": r"^\d{1,11}(\.\d{1,17})?$",
    "stamp": _STAMP + "$",
    "zoned": _STAMP + r"[+-]([01]\d|2[0-3]):[0-5]\d$",
    "text": r"^([!-~]([ -~]*[!-~])?)?$",
}


def plain_cells(block: LineBlock, names: Sequence[str], kinds: Mapping[str, Kind]) -> Cells | None:
    """Return the columns of ``kinds`` where all their cells are plain, else None.

    ``names`` are the columns of the header, in order.
    """
    table = _table(block, names, tuple(kinds))
    if table is None or table.num_rows != block.lines:
        return None
    cells = {name: _column(table[name], kind) for name, kind in kinds.items()}
    return None if any(values is None for values in cells.values()) else cells


def _table(block: LineBlock, names: Sequence[str], wanted: Sequence[str]) -> Any:
    if len(set(names)) < len(names):
        return None
    try:
        return csv.read_csv(
            pa.BufferReader(block.data),
            csv.ReadOptions(
                column_names=list(names), use_threads=False, block_size=len(block.data) + 1
            ),
            csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            csv.ConvertOptions(
                include_columns=list(wanted), column_types=dict.fromkeys(wanted, pa.string())
            ),
        )
    except pa.ArrowInvalid:
        return None


def _column(cells: Any, kind: Kind) -> Any:
    if kind == "stamp" and len(cells) and cells[0].as_py()[-6:-5] in ("+", "-"):
        return _stamps_ns(cells, "zoned", pa.timestamp("ns", "UTC"))
    if kind == "stamp":
        return _stamps_ns(cells, "stamp", pa.timestamp("ns"))
    if not _all_match(cells, kind):
        return None
    if kind == "text":
        return cells.to_pylist()
    if kind == "count":
        return _at_most(pc.cast(cells, pa.int64()).to_numpy(), MAX_COUNT)
    return _at_most(pc.cast(cells, pa.float64()).to_numpy(), MAX_SECONDS)


def _stamps_ns(cells: Any, form: str, moment: Any) -> npt.NDArray[np.int64] | None:
    if not _all_match(cells, form):
        return None
    try:
        return np.asarray(pc.cast(pc.cast(cells, moment), pa.int64()).to_numpy())
    except pa.ArrowInvalid:
        return None


def _all_match(cells: Any, form: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(cells, _FORMS[form])).as_py())


def _at_most(values: npt.NDArray[Any], most: float) -> npt.NDArray[Any] | None:
    return values if not len(values) or values.max() <= most else None


_IN_BLOCKS = ("time", "prompt_tokens", "output_tokens", "total_tokens", "model", "kind")
"""The fields that are read of a block; a file with images is read row by row."""


class CsvFormat(BlockFormat):
    """A CSV file in one of ``FORMATS``; takes its header. Raises ``TraceError``."""

    def __init__(self, name: str, rows: Rows) -> None:
        self._reader = reader = FORMATS[name]()
        self.source, self.begins_at_zero = rows.source, reader.begins_at_zero
        self.header_line = rows.peek()[0]
        self._header = Header(rows, reader.required)
        self._columns = {
            field: column
            for field, column in reader.columns.items()
            if column.name in self._header.names
        }
        where = f"{rows.path}:{self.header_line}: column"
        if "session_id" in self._columns:
            follow = "the rows of a session follow each other; read without --stream"
            raise TraceError(f"{where} '{self._columns['session_id'].name}': {follow}")
        if "time" not in self._columns:
            untimed = "is missing: a trace without times is read without --stream"
            raise TraceError(f"{where} '{reader.time.name}' {untimed}")

    def plain(self, block: LineBlock) -> pd.DataFrame | None:
        """Return the requests of a block of plain rows; None where a row may be wrong."""
        if "images" in self._columns:
            return None
        columns = {field: self._columns[field] for field in _IN_BLOCKS if field in self._columns}
        kinds = {column.name: column.kind for column in columns.values()}
        cells = plain_cells(block, self._header.names, kinds)
        if cells is None:
            return None
        values = {field: cells[column.name] for field, column in columns.items()}
        failed = values["output_tokens"] == 0
        for field, column in columns.items():
            few = values[field] < column.least if column.least else np.zeros_like(failed)
            if field == "prompt_tokens" and self._reader.failed_may_be_empty:
                few &= ~failed
            if few.any():
                return None
        lines = np.arange(block.first_line, block.first_line + len(failed))
        tokens = values["prompt_tokens"] + values["output_tokens"]
        return pd.DataFrame({
            "stamp": values.pop("time"),
            "line": lines,
            "failed": failed,
            "differs": values.pop("total_tokens", tokens) != tokens,
            "request_id": [f"{self.source}:{line - 1}" for line in lines.tolist()],
            "source_line": lines,
            **values,
        })  # fmt: skip

    def row(self, line: int, text: str) -> ParsedRow:
        """Parse a row. Raises ``RowError``."""
        values = self._reader.parse(line, self._header.cells(text))
        return values["time"], as_request(self.source, values, 0.0), differs(values)
