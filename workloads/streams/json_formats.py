"""The JSON Lines formats whose rows say all about themselves, so that blocks can be read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from servetwin.workloads import fields as check
from servetwin.workloads.errors import TraceError
from servetwin.workloads.fields import MAX_COUNT, MAX_SECONDS
from servetwin.workloads.readers import mooncake
from servetwin.workloads.readers.native import RecordReader
from servetwin.workloads.request import Request
from servetwin.workloads.rows import Rows
from servetwin.workloads.streams.csv_formats import ParsedRow
from servetwin.workloads.streams.line_blocks import LineBlock
from servetwin.workloads.streams.request_block import LineNames, RequestBlock

_REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
_LEAST = {
    "prompt_tokens": 1, "output_tokens": 1, "priority": -MAX_COUNT, "samples": 1,
    "estimated_output_tokens": 1, "source_line": 1, "turn": 0, "reasoning_tokens": 0,
    "shared_prefix_tokens": 0,
}  # fmt: skip
_SECONDS = ("arrival_s", "ttft_slo_s")
_TEXTS = ("request_id", "session_id", "tenant", "model", "kind")
_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in _LEAST]
    + [(name, pa.float64()) for name in _SECONDS]
    + [(name, pa.string()) for name in _TEXTS]
)
_DEFAULT = {"priority": 0, "samples": 1}


class NativeFormat:
    """Our own JSON Lines; takes the header. Ids are not compared with each other."""

    begins_at_zero = False

    def __init__(self, rows: Rows) -> None:
        self._reader = RecordReader(rows, unique=False)
        self.source = self._reader.source
        self.header_line = self._reader.first_line - 1
        if not self._reader.header.get("timed", True):
            raise TraceError(f"{rows.path}: a trace without times is read without --stream")

    def notes(self, differing_totals: int) -> tuple[str, ...]:
        """Return what the header and the rows that were read have to say."""
        return (*self._reader.header.get("notes", ()), *self._reader.notes)

    def plain(self, block: LineBlock) -> RequestBlock | None:
        """Return the requests of a block of plain rows; None where a row may be wrong."""
        table = _table(block)
        if table is None or not _is_right(table):
            return None
        numbered = range(block.first_line, block.first_line + block.lines)
        more: dict[str, Sequence[Any]] = {
            name: pc.fill_null(column, _DEFAULT[name]).to_pylist()
            if name in _DEFAULT
            else column.to_pylist()
            for name in (*_TEXTS, *_LEAST, "ttft_slo_s")
            if name not in _REQUIRED and (column := table[name]).null_count < len(column)
        }
        if "request_id" not in more:
            past = self._reader.first_line - 1
            numbers = range(numbered.start - past, numbered.stop - past)
            more["request_id"] = LineNames(self.source, numbers)
        if not self._reader.header:
            more["source_line"] = numbered
        if block_tokens := self._reader.header.get("block_tokens"):
            more["block_tokens"] = [block_tokens] * len(table)
        arrivals_s, prompts, outputs = (table[name].to_numpy() for name in _REQUIRED)
        lines = np.arange(numbered.start, numbered.stop)
        return RequestBlock(arrivals_s, prompts, outputs, outputs == 0, more, lines=lines)

    def row(self, line: int, text: str) -> ParsedRow:
        """Parse a row. Raises ``RowError``."""
        _, request = self._reader.parse(line, text)
        return request.arrival_s, request, False


def _table(block: LineBlock) -> "pa.Table | None":
    data, lines = block.data, block.lines
    starts = data.startswith(b"{") + data.count(b"\n{")
    if starts != lines or b"\\" in data or not data.isascii():
        return None
    try:
        table = json.read_json(
            pa.BufferReader(data),
            json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            json.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="error"),
        )
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == lines else None  # as many as lines begin: one on each


def _is_right(table: "pa.Table") -> bool:
    """Return whether all fields are within their bounds, and none that is required is missing."""
    if any(table[name].null_count for name in _REQUIRED):
        return False
    if table["request_id"].null_count not in (0, len(table)):
        return False
    least = {**_LEAST, **dict.fromkeys(_SECONDS, 0.0)}
    for name, lowest in least.items():
        ends = pc.min_max(table[name]).as_py()
        most = MAX_SECONDS if name in _SECONDS else MAX_COUNT
        if ends["min"] is not None and not lowest <= ends["min"] <= ends["max"] <= most:
            return False
        if name in _SECONDS and pc.any(pc.is_nan(table[name])).as_py():
            return False
    return True


class MooncakeFormat:
    """Mooncake's JSON Lines without sessions, row by row: most of a row is its list of ids."""

    begins_at_zero = False
    header_line = 0

    def __init__(self, rows: Rows) -> None:
        self._path, self.source = rows.path, rows.source

    def notes(self, differing_totals: int) -> tuple[str, ...]:
        """Return nothing."""
        return ()

    def plain(self, block: LineBlock) -> RequestBlock | None:
        """Return nothing: every row is parsed on its own."""

    def row(self, line: int, text: str) -> ParsedRow:
        """Parse a row. Raises ``RowError``, and ``TraceError`` for one of a session."""
        request: Request = mooncake.parse_row(self.source, line, check.json_object(text)).request
        if request.session_id is not None:
            raise TraceError(
                f"{self._path}:{line}: field 'session_id': the rows of a session follow each "
                "other; read without --stream"
            )
        return request.arrival_s, request, False
