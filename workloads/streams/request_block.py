"""Requests as columns: thousands of rows of a trace, of which each becomes a request when asked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from servetwin.workloads.files import MOST_LINE_CHARACTERS, open_bytes, too_long
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


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Stamps = Ints | Floats
"""Nanoseconds since 1970, or seconds."""
Stamp = int | float

_FIELDS = fields(Request)
_DEFAULTS = {f.name: None if f.default is MISSING else f.default for f in _FIELDS}
_OWN_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens", "status")


@dataclass(frozen=True, slots=True)
class LineNames(Sequence[str]):
    """Names of requests by their lines, ``SOURCE:NUMBER``, made when they are asked for."""

    source: str
    numbers: range

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        return map(self._name, self.numbers)

    def __getitem__(self, place: Any) -> Any:
        found = self.numbers[place]
        return LineNames(self.source, found) if isinstance(found, range) else self._name(found)

    def _name(self, number: int) -> str:
        return f"{self.source}:{number}"


@dataclass(frozen=True, slots=True)
class RequestBlock:
    """Columns of requests in file order.

    ``stamps`` are as the source has them, ``more`` are other fields of ``Request`` by name,
    ``differing_totals`` counts the rows whose total is not the sum of their tokens.
    """

    stamps: Stamps
    prompt_tokens: Ints
    output_tokens: Ints
    failed: npt.NDArray[np.bool_]
    more: Mapping[str, Sequence[Any]]
    differing_totals: int = 0
    lines: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.stamps)

    @classmethod
    def of(
        cls, rows: Sequence[tuple[int, Stamp, Request]], differing_totals: int = 0
    ) -> "RequestBlock":
        """Return the columns of (line, stamp, request); the arrivals of the requests are not read.

        Raises ``OverflowError`` for a stamp beyond 64 bits.
        """
        requests = [request for _, _, request in rows]
        more = {
            name: [getattr(request, name) for request in requests]
            for name, default in _DEFAULTS.items()
            if name not in _OWN_COLUMNS and any(getattr(r, name) != default for r in requests)
        }
        listed = [stamp for _, stamp, _ in rows]
        whole = all(isinstance(stamp, int) for stamp in listed)
        return cls(
            np.array(listed, np.int64) if whole else np.array(listed, np.float64),
            np.array([request.prompt_tokens for request in requests], np.int64),
            np.array([request.output_tokens for request in requests], np.int64),
            np.array([request.status == "failed" for request in requests], np.bool_),
            more,
            differing_totals,
            np.array([line for line, _, _ in rows], np.int64),
        )

    @property
    def answered(self) -> "RequestBlock":
        """The rows that did not fail."""
        return self.where(~self.failed) if self.failed.any() else self

    @property
    def total_tokens(self) -> Ints:
        """Prompt and output of each row together."""
        return self.prompt_tokens + self.output_tokens

    def where(self, mask: npt.NDArray[np.bool_]) -> "RequestBlock":
        """Return some of the rows."""
        places = np.flatnonzero(mask).tolist()
        return RequestBlock(
            self.stamps[mask],
            self.prompt_tokens[mask],
            self.output_tokens[mask],
            self.failed[mask],
            {name: [values[place] for place in places] for name, values in self.more.items()},
            self.differing_totals,
            self.lines[mask],
        )

    def between(self, first: int, last: int) -> "RequestBlock":
        """Return the rows from ``first`` up to and without ``last``."""
        if first <= 0 and last >= len(self):
            return self
        rows = slice(max(0, first), max(0, last))
        return RequestBlock(
            self.stamps[rows],
            self.prompt_tokens[rows],
            self.output_tokens[rows],
            self.failed[rows],
            {name: values[rows] for name, values in self.more.items()},
            self.differing_totals,
            self.lines[rows],
        )

    def requests(self, arrivals_s: Floats) -> Iterator[Request]:
        """Yield the requests, which arrive at ``arrivals_s``."""
        known: dict[str, Iterable[Any]] = {
            **self.more,
            "arrival_s": arrivals_s.tolist(),
            "prompt_tokens": self.prompt_tokens.tolist(),
            "output_tokens": self.output_tokens.tolist(),
        }
        if self.failed.any():
            known["status"] = ["failed" if failed else "ok" for failed in self.failed]
        last = max(place for place, f in enumerate(_FIELDS) if f.name in known)
        return requests_of(
            known.get(f.name, repeat(_DEFAULTS[f.name])) for f in _FIELDS[: last + 1]
        )
