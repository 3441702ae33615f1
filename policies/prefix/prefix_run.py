"""Runs of blocks that prompts share, and their order of eviction."""

from dataclasses import dataclass, field

from servetwin.policies.block_keys import Keys
from servetwin.policies.prefix.eviction import EVICTION_ORDERS


@dataclass(slots=True, eq=False)
class HeldRun:
    """Blocks at places ``start`` to ``end`` - 1 of a block table, held as a whole.

    ``keys`` belong to a prompt through them, ``key_blocks`` blocks each, from the prompt's
    beginning: as keys are chained, all such prompts have them alike up to ``end``. A run without
    keys belongs to one request.
    """

    keys: Keys
    key_blocks: int
    start: int
    end: int
    born: int
    blocks: list[int] = field(default_factory=list)
    """Numbers of the blocks from the first on, as far as a table needed them."""
    holders: int = 1
    uses: int = 1

    @property
    def size(self) -> int:
        """The number of blocks."""
        return self.end - self.start

    def reach(self, keys: Keys, end: int) -> int:
        """Return the place, at most ``end``, up to which a prompt shares the blocks.

        It shares the first one. As keys are chained, it parts from them once.
        """
        run_keys, size = self.keys, self.key_blocks
        differ = (end - 1) // size
        if run_keys is keys or run_keys[differ] == keys[differ]:
            return end
        agree = self.start // size + 1
        while agree < differ:  # the unit at ``differ`` is known to differ
            middle = (agree + differ) // 2
            if run_keys[middle] == keys[middle]:
                agree = middle + 1
            else:
                differ = middle
        return agree * size


@dataclass(slots=True, eq=False)
class PrefixRun(HeldRun):
    """A node of the tree; ``rank`` is its place in the order of eviction, None while it is held."""

    parent: "PrefixRun | None" = None
    children: "dict[int, PrefixRun]" = field(default_factory=dict)
    rank: tuple[float, int] | None = None

    @property
    def first_key(self) -> int:
        """The key of the unit that the first block lies in."""
        return self.keys[self.start // self.key_blocks]


class EvictionRank:
    """Ranks idle blocks by an ``EvictionOrder``, and counts the moments."""

    def __init__(self, order: str) -> None:
        self._rank = EVICTION_ORDERS.build(order).rank
        self._now = 0

    def tick(self) -> int:
        """Return the next moment."""
        self._now += 1
        return self._now

    def of(self, uses: int, born: int) -> tuple[float, int]:
        """Return the rank of what becomes idle now; the smallest is evicted first."""
        now = self.tick()
        return self._rank(uses, born, now), now
