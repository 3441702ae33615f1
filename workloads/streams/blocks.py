"""Blocks of a trace file: its lines, and the columns of their requests.

Such a block is a frame in file order. It has the ``stamp`` of each row as the source has it
(nanoseconds since 1970, or seconds), its ``line``, whether it has ``failed``, whether its total
``differs`` from the sum of its tokens, and fields of ``Request`` by name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.workloads.files import MOST_LINE_CHARACTERS, open_bytes, too_long
from servetwin.workloads.readers.published_csv import total_notes
from servetwin.workloads.request import Request, requests_of

BLOCK_BYTES = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LineBlock(NamedTuple):
    """Whole lines of a file, and the number of the first of them, counted from 1."""

    first_line: int
    data: bytes

    @property
    def lines(self) -> int:
        """The number of lines; the last may have no line feed."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))

    def texts(self) -> Iterator[tuple[int, str]]:
        """Yield each line with its number; bytes that are not UTF-8 become lone surrogates."""
        lines = self.data.decode("utf-8", errors="surrogateescape").split("\n")
        if not lines[-1]:
            lines.pop()
        return enumerate(lines, self.first_line)

    def after(self, line: int) -> "LineBlock":
        """Return the lines behind the line of that number."""
        data = self.data
        for _ in range(line + 1 - self.first_line):
            data = data.partition(b"\n")[2]
        return LineBlock(max(self.first_line, line + 1), data)


def line_blocks(path: Path) -> Iterator[LineBlock]:
    """Yield the lines of a plain or gzipped file in blocks of about ``BLOCK_BYTES``.

    Raises ``TraceError`` as ``workloads.files.open_text`` does, also for a line that is too long.
    """
    first_line, rest = 1, b""
    with open_bytes(path) as file:
        while more := file.read1(BLOCK_BYTES):
            if first_line == 1 and len(rest) < len(_BYTE_ORDER_MARK):
                more, rest = (rest + more).removeprefix(_BYTE_ORDER_MARK), b""
            head, line_feed, tail = more.rpartition(b"\n")
            if not line_feed:
                rest += more
                if len(rest) > MOST_LINE_CHARACTERS:
                    raise too_long(path, first_line)
                continue
            block = LineBlock(first_line, rest + head + line_feed)
            yield block
            first_line, rest = first_line + block.lines, tail
    if rest:
        yield LineBlock(first_line, rest)


Floats = npt.NDArray[np.float64]
Stamp = int | float
"""Nanoseconds since 1970, or seconds."""

ParsedRow = tuple[Stamp, Request, bool]
"""The stamp of a row, its request (whose arrival is not read), and whether its total is another
than the sum of its tokens.
"""


class BlockFormat:
    """A format whose rows say all about themselves; takes the header of a file."""

    source: str
    header_line: int = 0
    """0 where there is none."""
    begins_at_zero: bool = False
    """Whether the first stamp is the beginning of the trace's time."""

    def notes(self, differing_totals: int) -> tuple[str, ...]:
        """Return what the rows that were read have to say."""
        return total_notes(differing_totals)

    def plain(self, block: LineBlock) -> pd.DataFrame | None:
        """Return the requests of a block of plain rows; None where a row may be wrong."""
        return None

    def row(self, line: int, text: str) -> ParsedRow:
        """Parse a row. Raises ``RowError``."""
        raise NotImplementedError


_FIELDS = fields(Request)
_DEFAULTS = {f.name: None if f.default is MISSING else f.default for f in _FIELDS}
_IN_EVERY_BLOCK = ("arrival_s", "prompt_tokens", "output_tokens", "status")


def block_of(rows: Sequence[tuple[int, Stamp, Request, bool]]) -> pd.DataFrame:
    """Return the columns of (line, stamp, request, differs); arrivals are not read.

    Raises ``OverflowError`` for a stamp beyond 64 bits.
    """
    requests = [request for _, _, request, _ in rows]
    stamps = [stamp for _, stamp, _, _ in rows]
    whole = all(isinstance(stamp, int) for stamp in stamps)
    columns: dict[str, Any] = {
        "stamp": np.array(stamps, np.int64 if whole else np.float64),
        "line": np.array([line for line, _, _, _ in rows], np.int64),
        "failed": np.array([request.status == "failed" for request in requests], np.bool_),
        "differs": np.array([differs for _, _, _, differs in rows], np.bool_),
    }
    for name in ("prompt_tokens", "output_tokens"):
        columns[name] = np.array([getattr(request, name) for request in requests], np.int64)
    for name, default in _DEFAULTS.items():
        values = [getattr(request, name) for request in requests]
        if name not in _IN_EVERY_BLOCK and any(value != default for value in values):
            columns[name] = pd.Series(values, dtype=object)
    return pd.DataFrame(columns)


def requests_in(block: pd.DataFrame, arrivals_s: Floats) -> Iterator[Request]:
    """Yield the requests of a block, which arrive at ``arrivals_s``."""
    known = {name: block[name].tolist() for name in _DEFAULTS if name in block}
    known["arrival_s"] = arrivals_s.tolist()
    known["status"] = ["failed" if failed else "ok" for failed in block["failed"]]
    last = max(place for place, f in enumerate(_FIELDS) if f.name in known)
    return requests_of(known.get(f.name, repeat(_DEFAULTS[f.name])) for f in _FIELDS[: last + 1])
