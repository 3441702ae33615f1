"""The CSV formats whose rows say all about themselves, so that they can be read in blocks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from servetwin.workloads.errors import TraceError
from servetwin.workloads.fields import MAX_COUNT, MAX_SECONDS
from servetwin.workloads.readers import azure, burstgpt, vidur
from servetwin.workloads.readers.columns import Columns, total_notes
from servetwin.workloads.request import Request
from servetwin.workloads.rows import Rows
from servetwin.workloads.streams.request_block import LineBlock, LineNames, RequestBlock, Stamp

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


ParsedRow = tuple[Stamp, Request, bool]
"""The stamp of a row, its request (whose arrival is not read), and whether its total is another
than the sum of its tokens.
"""


@dataclass(frozen=True)
class CsvLayout:
    """The columns of a format, and the parser of a row that has the last word.

    ``texts`` are fields of a request by column. A file with a column of ``by_row`` is read row by
    row, one with a column of ``whole`` is not read in blocks at all, nor one without ``time``.
    """

    required: tuple[str, ...]
    time: str
    time_kind: Kind
    prompt: str
    output: str
    parse: Callable[[str, int, dict[str, str]], ParsedRow]
    total: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    by_row: str | None = None
    whole: str | None = None
    begins_at_zero: bool = True
    failed_prompts_may_be_empty: bool = False

    def kinds(self, names: list[str]) -> dict[str, Kind]:
        """Return what the columns hold that are read of a file."""
        kinds: dict[str, Kind] = {self.time: self.time_kind}
        kinds |= {self.prompt: "count", self.output: "count"}
        if self.total in names:
            kinds[str(self.total)] = "count"
        return {**kinds, **dict.fromkeys(self.texts, "text")}


def _azure_row(source: str, line: int, cells: dict[str, str]) -> ParsedRow:
    row = azure.parse_row(line, cells)
    return row.stamp_ns, azure.as_request(source, row, row.stamp_ns), False


def _burstgpt_row(source: str, line: int, cells: dict[str, str]) -> ParsedRow:
    row = burstgpt.parse_row(line, cells)
    request = burstgpt.as_request(source, row, row.stamp_s)
    return row.stamp_s, request, row.total_tokens not in (None, request.total_tokens)


def _vidur_row(source: str, line: int, cells: dict[str, str]) -> ParsedRow:
    request, total = vidur.parse_row(source, line, cells)
    return request.arrival_s, request, total not in (None, request.total_tokens)


LAYOUTS = {
    "azure": CsvLayout(
        azure.COLUMNS, azure.TIME, "stamp", azure.PROMPT, azure.OUTPUT, _azure_row,
        by_row=azure.IMAGES,
    ),
    "burstgpt": CsvLayout(
        burstgpt.COLUMNS, burstgpt.TIME, "seconds", burstgpt.PROMPT, burstgpt.OUTPUT,
        _burstgpt_row, total=burstgpt.TOTAL, texts={burstgpt.MODEL: "model", burstgpt.KIND: "kind"},
        whole=burstgpt.SESSION, failed_prompts_may_be_empty=True,
    ),
    "vidur": CsvLayout(
        vidur.COLUMNS, vidur.TIME, "seconds", vidur.PROMPT, vidur.OUTPUT, _vidur_row,
        total=vidur.TOTAL, begins_at_zero=False,
    ),
}  # fmt: skip
"""By the name of the reader."""


class CsvFormat:
    """A CSV file in one of ``LAYOUTS``; takes its header. Raises ``TraceError``."""

    def __init__(self, name: str, rows: Rows) -> None:
        self._layout = layout = LAYOUTS[name]
        self.source, self.begins_at_zero = rows.source, layout.begins_at_zero
        self.header_line = rows.peek()[0]
        self._columns = Columns(rows, layout.required)
        if layout.whole in self._columns.names:
            raise TraceError(f"{rows.path}:{self.header_line}: {_sessions(layout.whole)}")
        if layout.time not in self._columns.names:
            raise TraceError(f"{rows.path}:{self.header_line}: {_untimed(layout.time)}")

    def notes(self, differing_totals: int) -> tuple[str, ...]:
        """Return what the rows that were read have to say."""
        return total_notes(differing_totals)

    def plain(self, block: LineBlock) -> RequestBlock | None:
        """Return the requests of a block of plain rows; None where a row may be wrong."""
        layout, names = self._layout, self._columns.names
        if layout.by_row in names:
            return None
        cells = plain_cells(block, names, layout.kinds(names))
        return None if cells is None else self._block(block.first_line, cells)

    def _block(self, first_line: int, cells: Mapping[str, Any]) -> RequestBlock | None:
        layout = self._layout
        prompts, outputs = cells[layout.prompt], cells[layout.output]
        failed = outputs == 0
        empty = prompts == 0
        if (empty & ~failed if layout.failed_prompts_may_be_empty else empty).any():
            return None
        totals = cells.get(layout.total or "", prompts + outputs)
        if layout.total in cells and not layout.failed_prompts_may_be_empty and not totals.all():
            return None
        numbered = range(first_line, first_line + len(prompts))
        more: dict[str, Sequence[Any]] = {
            "request_id": LineNames(self.source, range(numbered.start - 1, numbered.stop - 1)),
            "source_line": numbered,
            **{field: cells[column] for column, field in layout.texts.items()},
        }
        differing = int((totals != prompts + outputs).sum())
        stamps, lines = cells[layout.time], np.arange(numbered.start, numbered.stop)
        return RequestBlock(stamps, prompts, outputs, failed, more, differing, lines)

    def row(self, line: int, text: str) -> ParsedRow:
        """Parse a row. Raises ``RowError``."""
        return self._layout.parse(self.source, line, self._columns.cells(text))


def _sessions(column: str | None) -> str:
    return f"column '{column}': the rows of a session follow each other; read without --stream"


def _untimed(column: str) -> str:
    return f"column '{column}' is missing: a trace without times is read without --stream"
