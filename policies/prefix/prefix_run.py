"""A run of blocks that prompts share: a node of a prefix tree."""

from dataclasses import dataclass, field

from servetwin.policies.block_keys import Keys


@dataclass(slots=True, eq=False)
class PrefixRun:
    """A run of blocks: places ``start`` to ``end`` - 1 of every prompt through it.

    ``keys`` belong to a prompt through it, ``key_blocks`` blocks each, from the prompt's
    beginning: as keys are chained, all such prompts have them alike up to ``end``. An unnamed run
    (``keys`` empty) belongs to one prompt. ``rank`` is its place in the order of eviction, None
    while it has holders.
    """

    keys: Keys
    key_blocks: int
    start: int
    end: int
    parent: "PrefixRun | None"
    born: int
    blocks: list[int] = field(default_factory=list)
    """Numbers of the blocks from the first on, as far as a table needed them."""
    children: "dict[int, PrefixRun]" = field(default_factory=dict)
    holders: int = 0
    uses: int = 0
    rank: tuple[float, int] | None = None

    @property
    def size(self) -> int:
        """The number of blocks."""
        return self.end - self.start

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
