"""A trace file that is read in blocks: columns where rows are plain, else row by row.

The requests, the notes and the errors are the same as from ``workloads.reading.read_trace``, for
the formats whose rows say all about themselves. No more than a block is in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Protocol

from servetwin.workloads.errors import TraceError
from servetwin.workloads.files import is_directory, open_text
from servetwin.workloads.reading import find_reader
from servetwin.workloads.rows import BadRows, RowError, Rows, utf8
from servetwin.workloads.streams.csv_formats import LAYOUTS, CsvFormat, ParsedRow
from servetwin.workloads.streams.json_formats import MooncakeFormat, NativeFormat
from servetwin.workloads.streams.line_blocks import LineBlock, line_blocks
from servetwin.workloads.streams.request_block import RequestBlock, Stamp

STREAMED = (*LAYOUTS, "mooncake", "native")
"""The readers whose files can be read in blocks."""


class BlockFormat(Protocol):
    """A format whose rows say all about themselves."""

    source: str
    header_line: int
    """0 where there is none."""
    begins_at_zero: bool
    """Whether the first stamp is the beginning of the trace's time."""

    def notes(self, differing_totals: int) -> tuple[str, ...]:
        """Return what the rows that were read have to say."""

    def plain(self, block: LineBlock) -> RequestBlock | None:
        """Return the requests of a block of plain rows; None where a row may be wrong."""

    def row(self, line: int, text: str) -> ParsedRow:
        """Parse a row. Raises ``RowError``."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """Where a trace is, what names its format (None: it is seen from the first row), and how many
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
        """What the rows so far have to say; skipped rows are left out."""
        return self.format.notes(self._differing_totals)

    @property
    def bad_notes(self) -> tuple[str, ...]:
        """The rows that were skipped."""
        return self._bad.notes

    def blocks(self, skipped: int = 0) -> Iterator[RequestBlock]:
        """Yield the requests; the first ``skipped`` blocks are not parsed.

        Raises ``TraceError`` for bad rows, and for a row that is earlier than the one before it.
        """
        header = self.format.header_line
        lines = dropwhile(lambda block: not block.data, self._behind(header))
        for place, block in enumerate(lines):
            if place >= skipped:
                found = self.format.plain(block) or self._row_by_row(block)
                self._require_order(found)
                self._differing_totals += found.differing_totals
                yield found

    def _behind(self, header_line: int) -> Iterator[LineBlock]:
        for block in line_blocks(self._path):
            yield block if block.first_line > header_line else block.after(header_line)

    def _row_by_row(self, block: LineBlock) -> RequestBlock:
        parsed, differing = [], 0
        for line, text in block.texts():
            if not (stripped := text.strip()):
                continue
            try:
                stamp, request, differs = self.format.row(line, utf8(stripped))
            except RowError as error:
                self._bad.add(self._path, line, f"{self._path}:{line}: {error}")
                continue
            parsed.append((line, stamp, request))
            differing += differs
        try:
            return RequestBlock.of(parsed, differing)
        except OverflowError:
            where = f"{self._path}:{block.first_line}"
            raise TraceError(f"{where}: a stamp beyond the years 1678 to 2261") from None

    def _require_order(self, block: RequestBlock) -> None:
        if not len(block):
            return
        stamps = block.stamps
        late = (stamps[1:] < stamps[:-1]).nonzero()[0]
        if self._latest is not None and stamps[0] < self._latest:
            line = block.lines[0]
        elif len(late):
            line = block.lines[late[0] + 1]
        else:
            self._latest = stamps[-1].item()
            return
        raise TraceError(
            f"{self._path}:{line}: earlier than the row before it: a stream cannot be sorted; sort "
            "the file by time, or use servetwin replay"
        )


def _format(name: str, rows: Rows) -> BlockFormat:
    if name in LAYOUTS:
        return CsvFormat(name, rows)
    return NativeFormat(rows) if name == "native" else MooncakeFormat(rows)


def _not_streamed(name: str, is_array: bool) -> str:
    what = "a JSON array" if is_array else f"a trace of {name}"
    return f"{what} is read whole; use servetwin replay, or give one of {', '.join(STREAMED)}"
