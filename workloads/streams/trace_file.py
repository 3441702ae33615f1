"""A trace file that is read in blocks: columns where rows are plain, else row by row.

The requests, the notes and the errors are the same as from ``workloads.reading.read_trace``, for
the formats whose rows say all about themselves. No more than a block is in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from servetwin.workloads import fields as check
from servetwin.workloads.errors import TraceError
from servetwin.workloads.fields import MAX_COUNT, MAX_SECONDS
from servetwin.workloads.files import is_directory, open_text
from servetwin.workloads.readers import mooncake
from servetwin.workloads.readers.native import COUNTS, RecordReader
from servetwin.workloads.readers.published_csv import FORMATS
from servetwin.workloads.reading import find_reader
from servetwin.workloads.request import Request
from servetwin.workloads.rows import BadRows, RowError, Rows, utf8
from servetwin.workloads.streams.blocks import (
    BlockFormat,
    LineBlock,
    ParsedRow,
    Stamp,
    block_of,
    line_blocks,
)
from servetwin.workloads.streams.csv_formats import CsvFormat

_REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
_LEAST = {
    name: -MAX_COUNT if least is None else least
    for name, least in {**COUNTS, "prompt_tokens": 1, "output_tokens": 1}.items()
    if name != "block_tokens"
}
_SECONDS = ("arrival_s", "ttft_slo_s")
_TEXTS = ("request_id", "session_id", "tenant", "model", "kind")
_SCHEMA = pa.schema({
    **dict.fromkeys(_LEAST, pa.int64()),
    **dict.fromkeys(_SECONDS, pa.float64()),
    **dict.fromkeys(_TEXTS, pa.string()),
})  # fmt: skip
_DEFAULT = {"priority": 0, "samples": 1}


class NativeFormat(BlockFormat):
    """Our own JSON Lines; takes the header. Ids are not compared with each other."""

    def __init__(self, rows: Rows) -> None:
        self._reader = RecordReader(rows, unique=False)
        self.source = self._reader.source
        self.header_line = self._reader.first_line - 1
        if not self._reader.header.get("timed", True):
            raise TraceError(f"{rows.path}: a trace without times is read without --stream")

    def notes(self, differing_totals: int) -> tuple[str, ...]:
        """Return what the header and the rows that were read have to say."""
        return (*self._reader.header.get("notes", ()), *self._reader.notes)

    def plain(self, block: LineBlock) -> pd.DataFrame | None:
        """Return the requests of a block of plain rows; None where a row may be wrong."""
        table = _table(block)
        if table is None or not _is_right(table):
            return None
        lines = np.arange(block.first_line, block.first_line + block.lines)
        columns: dict[str, Any] = {
            name: pd.Series(_filled(column, _DEFAULT.get(name)), dtype=object)
            for name in (*_TEXTS, *_LEAST, "ttft_slo_s")
            if name not in _REQUIRED and (column := table[name]).null_count < len(column)
        }
        if "request_id" not in columns:
            numbers = (lines + 1 - self._reader.first_line).tolist()
            columns["request_id"] = [f"{self.source}:{number}" for number in numbers]
        if not self._reader.header:
            columns["source_line"] = lines
        if block_tokens := self._reader.header.get("block_tokens"):
            columns["block_tokens"] = block_tokens
        arrivals_s, prompts, outputs = (table[name].to_numpy() for name in _REQUIRED)
        columns |= {"prompt_tokens": prompts, "output_tokens": outputs, "failed": outputs == 0}
        return pd.DataFrame({"stamp": arrivals_s, "line": lines, "differs": False, **columns})

    def row(self, line: int, text: str) -> ParsedRow:
        """Parse a row. Raises ``RowError``."""
        _, request = self._reader.parse(line, text)
        return request.arrival_s, request, False


def _filled(column: "pa.ChunkedArray", default: int | None) -> list[Any]:
    values: list[Any] = (column if default is None else pc.fill_null(column, default)).to_pylist()
    return values


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


class MooncakeFormat(BlockFormat):
    """Mooncake's JSON Lines without sessions, row by row: most of a row is its list of ids."""

    def __init__(self, rows: Rows) -> None:
        self._path, self.source = rows.path, rows.source

    def row(self, line: int, text: str) -> ParsedRow:
        """Parse a row. Raises ``RowError``, and ``TraceError`` for one of a session."""
        request: Request = mooncake.parse_row(self.source, line, check.json_object(text)).request
        if request.session_id is not None or request.parent_ids:
            raise TraceError(
                f"{self._path}:{line}: field 'session_id': the rows of a session follow each "
                "other; read without --stream"
            )
        return request.arrival_s, request, False


STREAMED = (*FORMATS, "mooncake", "native")
"""The readers whose files can be read in blocks."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The path of a trace, the name of its format (None: seen from the first row), and how many
    bad rows are skipped.
    """

    path: Path
    reader: str | None = None
    max_bad_rows: int = 0

    def opened(self) -> "OpenTrace":
        """Open the file for one reading. Raises ``TraceError`` where it cannot be streamed."""
        if is_directory(self.path):
            raise TraceError(f"{self.path}: a directory is read whole; use servetwin replay")
        bad = BadRows(self.max_bad_rows)
        with open_text(self.path) as lines:
            rows = Rows(self.path, lines, bad)
            name = find_reader(rows, self.reader)
            if rows.is_array or name not in STREAMED:
                raise TraceError(f"{self.path}: {_not_streamed(name, rows.is_array)}")
            return OpenTrace(self.path, _format(name, rows), bad)


class OpenTrace:
    """One reading of a trace file from its first row on."""

    def __init__(self, path: Path, format: BlockFormat, bad: BadRows) -> None:
        self.format = format
        self._path, self._bad = path, bad
        self._latest: Stamp | None = None
        self._differing_totals = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes on the rows so far; skipped rows are left out."""
        return self.format.notes(self._differing_totals)

    @property
    def bad_notes(self) -> tuple[str, ...]:
        """The rows that were skipped."""
        return self._bad.notes

    def blocks(self) -> Iterator[pd.DataFrame]:
        """Yield the requests.

        Raises ``TraceError`` for bad rows, and for a row that is earlier than the one before it.
        """
        header = self.format.header_line
        lines = dropwhile(lambda block: not block.data, self._behind(header))
        for block in lines:
            requests = self.format.plain(block)
            if requests is None or requests.empty:
                requests = self._row_by_row(block)
            self._require_order(requests)
            self._differing_totals += int(requests["differs"].sum())
            yield requests

    def _behind(self, header_line: int) -> Iterator[LineBlock]:
        for block in line_blocks(self._path):
            yield block if block.first_line > header_line else block.after(header_line)

    def _row_by_row(self, block: LineBlock) -> pd.DataFrame:
        parsed = []
        for line, text in block.texts():
            if not (stripped := text.strip()):
                continue
            try:
                stamp, request, differs = self.format.row(line, utf8(stripped))
            except RowError as error:
                self._bad.add(self._path, line, f"{self._path}:{line}: {error}")
                continue
            parsed.append((line, stamp, request, differs))
        try:
            return block_of(parsed)
        except OverflowError:
            where = f"{self._path}:{block.first_line}"
            raise TraceError(f"{where}: a stamp beyond the years 1678 to 2261") from None

    def _require_order(self, requests: pd.DataFrame) -> None:
        """Raise ``TraceError`` for a row earlier than the one before; failed ones are left out."""
        block = requests[~requests["failed"].astype(bool)] if len(requests) else requests
        if not len(block):
            return
        stamps = block["stamp"].to_numpy()
        late = (stamps[1:] < stamps[:-1]).nonzero()[0]
        if self._latest is not None and stamps[0] < self._latest:
            line = block["line"].iloc[0]
        elif len(late):
            line = block["line"].iloc[late[0] + 1]
        else:
            self._latest = stamps[-1].item()
            return
        raise TraceError(
            f"{self._path}:{line}: earlier than the row before it: a stream cannot be sorted; sort "
            "the file by time, or use servetwin replay"
        )


def _format(name: str, rows: Rows) -> BlockFormat:
    if name in FORMATS:
        return CsvFormat(name, rows)
    return NativeFormat(rows) if name == "native" else MooncakeFormat(rows)


def _not_streamed(name: str, is_array: bool) -> str:
    what = "a JSON array" if is_array else f"a trace of {name}"
    return f"{what} is read whole; use servetwin replay, or give one of {', '.join(STREAMED)}"
