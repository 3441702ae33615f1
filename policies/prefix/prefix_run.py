"""Runs of blocks that prompts share."""

from dataclasses import dataclass, field

from servetwin.policies.sequence import Keys


@dataclass(slots=True, eq=False)
class HeldRun:
    """Blocks at places ``start`` to ``end`` - 1 of a block table, held as a whole.

    ``keys`` name them, ``key_blocks`` blocks each, from the beginning of a prompt on; blocks that
    belong to one request have none. ``born`` is the moment at which the first was filled.
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


@dataclass(slots=True, eq=False)
class PrefixRun(HeldRun):
    """A node of a prefix tree: all prompts through it have its keys alike up to ``end``.

    ``rank`` is its place in the order of eviction, None while it has holders.
    """

    parent: "PrefixRun | None" = None
    children: "dict[int, PrefixRun]" = field(default_factory=dict)
    rank: tuple[float, int] | None = None

    @property
    def first_key(self) -> int:
        """The key of the unit that the first block lies in."""
        return self.keys[self.start // self.key_blocks]

    def reach(self, keys: Keys) -> int:
        """Return the place up to which a prompt shares the blocks; it shares the first."""
        size = self.key_blocks
        units = min(-(-self.end // size), len(keys))
        if self.keys[units - 1] != keys[units - 1]:
            units = parting(self.keys, keys, self.start // size, units - 1)
        return min(units * size, self.end)


def parting(own: Keys, keys: Keys, agree: int, differ: int) -> int:
    """Return the first place at which chained keys differ, between one that agrees and one not."""
    agree += 1
    while agree < differ:
        middle = (agree + differ) // 2
        if own[middle] == keys[middle]:
            agree = middle + 1
        else:
            differ = middle
    return agree
