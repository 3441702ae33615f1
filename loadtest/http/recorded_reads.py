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
    """Pieces of bytes in the order of their arrival, each with its ``time.perf_counter_ns``."""

    def __init__(self) -> None:
        self._stamps_ns = array("q")
        self._ends = array("q", [0])
        self._data = bytearray()

    def add(self, stamp_ns: int, data: bytes) -> None:
        """Append a piece."""
        self._data += data
        self._stamps_ns.append(stamp_ns)
        self._ends.append(len(self._data))

    def span(self, start: int, most: int) -> ReadSpan:
        """Return the pieces from number ``start`` on, at most ``most`` of them."""
        stop = min(start + most, len(self))
        if start >= stop:
            return ReadSpan(b"", [], [])
        begin, *ends = self._ends[start : stop + 1]
        data = bytes(self._data[begin : ends[-1]])
        return ReadSpan(data, self._stamps_ns[start:stop].tolist(), [end - begin for end in ends])

    def __len__(self) -> int:
        return len(self._stamps_ns)

    def __getitem__(self, index: int) -> tuple[int, bytes]:
        """Return stamp and bytes of piece number ``index``, from 0."""
        start, end = self._ends[index], self._ends[index + 1]
        return self._stamps_ns[index], bytes(self._data[start:end])

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return map(self.__getitem__, range(len(self)))

    @property
    def size_bytes(self) -> int:
        """Bytes in all pieces."""
        return len(self._data)
