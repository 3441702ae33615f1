"""A buddy allocator (Knowlton, 1965): powers of two, split in halves and joined again."""

from heapq import heappop, heappush


class BuddyAllocator:
    """Regions out of ``capacity`` slots, the lowest address first.

    A capacity that is no power of two is the sum of some: 15,700 begins as 8,192 + 4,096 + 2,048 +
    1,024 + 256 + 64 + 16 + 4. The buddy of a region differs from it in one bit of its start.
    """

    def __init__(self, capacity: int) -> None:
        self.largest = 1 << (capacity.bit_length() - 1)
        """The longest region that can ever be had."""
        self.free_slots = capacity
        self._free: dict[int, set[int]] = {}  # starts by size
        self._heaps: dict[int, list[int]] = {}  # the same, lowest first, stale entries included
        start = 0
        for bit in reversed(range(capacity.bit_length())):
            if capacity >> bit & 1:
                self._put(start, 1 << bit)
                start += 1 << bit

    def allocate(self, size: int) -> int | None:
        """Start of a region of ``size``, a power of two; None, and nothing changed, without one."""
        fitting = size
        while not self._free.get(fitting):
            fitting <<= 1
            if fitting > self.largest:
                return None
        start = self._take_lowest(fitting)
        while fitting > size:
            fitting >>= 1
            self._put(start + fitting, fitting)
        self.free_slots -= size
        return start

    def release(self, start: int, size: int) -> None:
        """Give a region back, and join it with its buddy as long as that is free too."""
        self.free_slots += size
        while (buddy := start ^ size) in self._free.get(size, ()):
            self._free[size].remove(buddy)
            start = min(start, buddy)
            size <<= 1
        self._put(start, size)

    def largest_free(self) -> int:
        """Length of the longest region that could be had now."""
        return max((size for size, starts in self._free.items() if starts), default=0)

    def pieces(self) -> list[tuple[int, int]]:
        """(start, length) of every free region."""
        return [(start, size) for size, starts in self._free.items() for start in starts]

    def _put(self, start: int, size: int) -> None:
        self._free.setdefault(size, set()).add(start)
        heappush(self._heaps.setdefault(size, []), start)

    def _take_lowest(self, size: int) -> int:
        starts, heap = self._free[size], self._heaps[size]
        while True:
            start = heappop(heap)
            if start in starts:
                starts.remove(start)
                return start


def power_of_two(tokens: int) -> int:
    """The least power of two that is at least ``tokens``."""
    return 1 << (tokens - 1).bit_length()
