"""A run of blocks that prompts share: a node of the prefix tree."""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class PrefixRun:
    """A run of blocks: places ``start .. start + len(blocks) - 1`` of every prompt through it.

    ``keys`` name the units (``key_blocks`` blocks each) that the run touches, from the one of its
    first block on. ``rank`` is its place in the order of eviction, None while it has holders.
    """

    keys: list[int]
    key_blocks: int
    start: int
    blocks: list[int]
    parent: "PrefixRun | None"
    born: int
    children: "dict[int, PrefixRun]" = field(default_factory=dict)
    holders: int = 0
    uses: int = 0
    rank: tuple[float, int] | None = None

    @property
    def end(self) -> int:
        """The place after the last block."""
        return self.start + len(self.blocks)
