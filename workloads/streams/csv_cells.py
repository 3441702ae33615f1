"""The cells of a block of CSV rows by pyarrow, where every row is beyond doubt.

A cell is taken only in the plain form that the row-by-row reader (``workloads.fields``) reads the
same; of a block with any other cell nothing is taken, and that reader has the last word.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from servetwin.workloads.fields import MAX_COUNT, MAX_SECONDS
from servetwin.workloads.streams.line_blocks import LineBlock

Kind = Literal["count", "seconds", "stamp", "text"]
Cells = Mapping[str, Any]
"""By column: arrays of numbers, nanoseconds since 1970 of stamps, lists of texts."""

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
