"""Contiguous KV memory: one region per sequence, reserved whole at admission.

The three sizes are those that the paged-attention paper compares with (vLLM, SOSP 2023, section
6.1): the longest that the model allows, the prompt and the next power of two of the output, and
the prompt and the output as declared. A buddy allocator rounds each up to a power of two; its
rounding is internal waste, or external waste as in figure 2 of that paper.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from servetwin.policies.config import PolicyConfig
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.protocols import KVLayout, KVUsage
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr


class BuddyAllocator:
    """Regions out of ``capacity`` slots, the lowest address first.

    A capacity that is no power of two is the sum of some: 15,700 begins as 8,192 + 4,096 + 2,048 +
    1,024 + 256 + 64 + 16 + 4. The buddy of a region differs from it in one bit of its start.
    """

    def __init__(self, capacity: int) -> None:
        # The longest region that can ever be had.
        self.largest = 1 << (capacity.bit_length() - 1)
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


@mypyc_attr(allow_interpreted_subclasses=True)
class ContiguousKV:
    """Regions out of one address space, so external fragmentation is real."""

    layout: KVLayout = "contiguous"
    shares_prefixes = False

    def __init__(self, config: PolicyConfig) -> None:
        self.block_tokens = 1
        self.capacity_tokens = config.kv_tokens
        self._max_model_len = config.max_model_len
        self._reservation = config.reservation
        self._rounding_is_external = config.rounding_waste == "external"
        self._watermark = config.watermark_of(config.kv_tokens)
        self._watermark_alone = self._watermark if config.watermark_alone else 0
        self._regions = BuddyAllocator(config.kv_tokens)

    def refusal(self, seq: Sequence) -> str | None:
        """Return why ``seq`` can never be held, even alone; None where it can."""
        needed = power_of_two(self._asked_for(seq))
        if needed <= min(self._regions.largest, self.capacity_tokens - self._watermark_alone):
            return None
        return (
            f"needs a region of {needed} KV tokens (reserving {self._reservation}), the memory "
            f"of {self.capacity_tokens} has none longer than {self._regions.largest}"
        )

    def cached_prefix(self, seq: Sequence) -> int:
        """Return 0: regions are not shared."""
        return 0

    def reserve(self, seq: Sequence, tokens: int) -> bool:
        """Reserve the whole region; False, unchanged, without one."""
        needed = power_of_two(self._asked_for(seq))
        free = self._regions.free_slots
        is_empty = free == self.capacity_tokens
        if free - needed < (self._watermark_alone if is_empty else self._watermark):
            return False
        start = self._regions.allocate(needed)
        if start is None:
            return False
        seq.region_start, seq.held.region_tokens = start, needed
        return True

    def commit(self, seq: Sequence, tokens: int) -> None:
        """Do nothing: regions are not shared."""

    def fork(self, seq: Sequence, child: Sequence, tokens: int) -> bool:
        """Return False: a region belongs to one sequence."""
        return False

    def release(self, seq: Sequence) -> None:
        """Give the region back."""
        if seq.region_start < 0:
            return
        self._regions.release(seq.region_start, seq.held.region_tokens)
        seq.region_start, seq.held.region_tokens = -1, 0

    def grow(self, lockstep: Lockstep, steps: int = 1) -> bool:
        """Return True: what a sequence may grow to is reserved already."""
        return True

    def repeatable_steps(self, lockstep: Lockstep, limit: int) -> int:
        """Return ``limit``: what a sequence may grow to is reserved already."""
        return limit

    def table(self, seq: Sequence, tokens: int) -> list[int]:
        """Return no blocks: a region needs no table."""
        return []

    def free_tokens(self) -> int:
        """Return the tokens in no region, in however small pieces."""
        return self._regions.free_slots

    def usage(self, seqs: Iterable[Sequence]) -> KVUsage:
        """Return where the memory is, given all sequences that hold any of it."""
        holders = list(seqs)
        live = sum(seq.computed_tokens for seq in holders)
        free, usable = self.free_tokens(), self._regions.largest_free()
        external = free - usable
        held = wasted = 0
        for seq in holders:
            region = seq.held.region_tokens
            if self._rounding_is_external and region:
                external += region - self._asked_for(seq)
                region = self._asked_for(seq)
            held += region
            wasted += max(0, region - seq.final_kv_tokens)
        return KVUsage.of(
            self.capacity_tokens, held, live, wasted, usable, external_waste_tokens=external
        )

    def check(self, seqs: Iterable[Sequence]) -> None:
        """Assert the invariants of the regions against the sequences that should hold them."""
        held = [(s.region_start, s.held.region_tokens) for s in seqs if s.region_start >= 0]
        pieces = sorted(held + self._regions.pieces())
        ends = [start + length for start, length in pieces]
        starts = [start for start, _ in pieces[1:]]
        assert starts == ends[:-1], "regions overlap or leak"
        assert pieces[0][0] == 0, "the first region leaks"
        assert ends[-1] == self.capacity_tokens, "the last region leaks"

    def _asked_for(self, seq: Sequence) -> int:
        """Return the length of the region to reserve, before the allocator rounds it up."""
        total = seq.prompt_tokens + seq.max_tokens
        if self._reservation == "max":
            return max(total, self._max_model_len)
        if self._reservation == "pow2":
            rounded = seq.prompt_tokens + power_of_two(seq.max_tokens)
            return min(rounded, max(total, self._max_model_len))
        return total
