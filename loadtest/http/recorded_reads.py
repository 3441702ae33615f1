"""The bytes of an answer and their stamps: 16 bytes per read beside the data, no object each."""

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple


class ReadSpan(NamedTuple):
    """Consecutive pieces: all their bytes, and the stamp and end offset of each."""

    data: bytes
    stamps_ns: list[int]
    ends: list[int]

    def pieces(self) -> Iterator["ReadSpan"]:
        """Yield each piece as a span of its own."""
        for stamp_ns, (start, end) in zip(self.stamps_ns, pairwise([0, *self.ends]), strict=True):
            yield ReadSpan(self.data[start:end], [stamp_ns], [end - start])


class RecordedReads:
    """Pieces of bytes in the order of their arrival, each with its ``time.perf_counter_ns``.

    Pieces have numbers from 0; those dropped keep theirs.
    """

    def __init__(self) -> None:
        self._stamps_ns = array("q")
        self._ends = array("q", [0])
        self._data = bytearray()
        self._dropped = 0

    def add(self, stamp_ns: int, data: bytes) -> None:
        """Append a piece."""
        self._data += data
        self._stamps_ns.append(stamp_ns)
        self._ends.append(self._ends[-1] + len(data))

    def drop(self, pieces: int) -> None:
        """Drop the bytes and stamps of the first ``pieces``."""
        if (more := min(pieces, len(self)) - self._dropped) > 0:
            del self._data[: self._ends[more] - self._ends[0]]
            del self._stamps_ns[:more], self._ends[:more]
            self._dropped += more

    def span(self, start: int, most: int) -> ReadSpan:
        """Return the pieces from number ``start`` on, at most ``most`` of them."""
        at = start - self._dropped
        stamps_ns = self._stamps_ns[at : at + most].tolist()
        if not stamps_ns:
            return ReadSpan(b"", [], [])
        begin, *ends = self._ends[at : at + len(stamps_ns) + 1]
        data = bytes(self._data[begin - self._ends[0] : ends[-1] - self._ends[0]])
        return ReadSpan(data, stamps_ns, [end - begin for end in ends])

    def __len__(self) -> int:
        return self._dropped + len(self._stamps_ns)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        spans = (self.span(number, 1) for number in range(self._dropped, len(self)))
        return ((span.stamps_ns[0], span.data) for span in spans)

    @property
    def size_bytes(self) -> int:
        """Bytes in all pieces, dropped or not."""
        return self._ends[-1]
