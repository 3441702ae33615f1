"""The lines of a trace file in blocks of bytes, so that a library can parse many rows at once."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from servetwin.workloads.files import MOST_LINE_CHARACTERS, open_bytes, too_long

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
