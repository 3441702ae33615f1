"""A run of blocks that prompts share: a node of the prefix tree."""


class PrefixRun:
    """A run of blocks: places ``start .. start + len(blocks) - 1`` of every prompt through it.

    ``keys`` name the units (``key_blocks`` blocks each) that the run touches, from the one of its
    first block on. ``rank`` is its place in the order of eviction, None while it has holders.
    """

    __slots__ = ("blocks", "born", "children", "holders", "key_blocks", "keys", "parent", "rank",
                 "start", "uses")  # fmt: skip

    def __init__(
        self,
        keys: list[int],
        key_blocks: int,
        start: int,
        blocks: list[int],
        parent: "PrefixRun | None",
        born: int,
    ) -> None:
        self.keys = keys
        self.key_blocks = key_blocks
        self.start = start
        self.blocks = blocks
        self.parent = parent
        self.children: dict[int, PrefixRun] = {}
        self.born = born
        self.holders = 0
        self.uses = 0
        self.rank: tuple[float, int] | None = None

    @property
    def end(self) -> int:
        """The place after the last block."""
        return self.start + len(self.blocks)
