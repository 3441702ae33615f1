"""Chained ids of blocks: equal ids mean equal prefixes."""

from bisect import bisect_left
from collections.abc import Sequence

from servetwin.workloads.block_ids import Chains, Ids

# Comes before the first block of a prompt.
ROOT = -1

# No native id, so no prompt ever asks for the same block.
_PRIVATE = -1


class Chaining:
    """Names blocks by their predecessor and their own native id, in order of first appearance.

    Native ids that name the content of a block alone recur under different prefixes; chained ids
    do not, so equal ids mean equal prefixes. Ids that are chained already are only renamed.
    """

    def __init__(self) -> None:
        self._ids: dict[tuple[int, int], int] = {}
        self._chains = Chains()
        self._last: tuple[int, Sequence[int], Ids] = (ROOT, (), ())

    def chained(self, native_ids: Sequence[int], after: int = ROOT) -> Ids:
        """Return the chained ids of blocks that follow the block ``after``."""
        last_after, last_native, last_chained = self._last
        known = shared_length(native_ids, last_native) if after == last_after else 0
        chained = list(last_chained[:known])  # most prompts extend the one before
        block = chained[-1] if chained else after
        for native_id in native_ids[known:]:
            block = self._ids.setdefault((block, native_id), len(self._ids))
            chained.append(block)
        self._last = after, native_ids, self._chains.of(chained)
        return self._last[2]

    def private(self, blocks: int, after: int = ROOT) -> Ids:
        """Return ids for ``blocks`` blocks that no other prompt shares."""
        return self.chained([_PRIVATE - len(self._ids)] * blocks, after)


def shared_length(left: Sequence[int], right: Sequence[int]) -> int:
    """Count the equal leading items by comparing slices, which is faster than item by item."""
    lengths = range(1, min(len(left), len(right)) + 1)
    return bisect_left(lengths, True, key=lambda length: left[:length] != right[:length])
