"""What a paged memory needs of an index of shared prompt blocks, and how one is built."""

from typing import Protocol

from policies.config import PolicyConfig
from policies.sequence import Sequence


class PrefixIndex(Protocol):
    """Knows which blocks hold which prefix, which sequences hold them, and which go first.

    A sequence holds the leading ``keyed_blocks`` of its block table through the index. Blocks that
    no sequence holds are *idle*: they can be found until their room is needed.
    """

    idle_blocks: int
    held_blocks: int

    def find(self, seq: Sequence, limit: int) -> tuple[int, int]:
        """Return (blocks found, idle ones among them) of the prompt's first ``limit`` blocks."""

    def hold(self, seq: Sequence, limit: int) -> list[int]:
        """Hold what ``find`` finds; return the blocks, in the order of positions."""

    def held(self, seq: Sequence) -> int:
        """Return how many leading blocks ``share`` would share."""

    def share(self, seq: Sequence, child: Sequence) -> list[int]:
        """Let ``child`` hold what ``seq`` holds through the index; return the blocks."""

    def insert(self, seq: Sequence, blocks: int) -> None:
        """The first ``blocks`` of the sequence's table are (being) filled with its prompt."""

    def release(self, seq: Sequence) -> list[int]:
        """Let go of what the sequence holds; returns the rest of its table, its own alone."""

    def evict(self, blocks: int) -> list[int]:
        """Forget so many idle blocks and return them."""

    def keyed(self, seq: Sequence) -> set[int]:
        """Return the blocks that the sequence holds through the index."""


def build_index(config: PolicyConfig) -> PrefixIndex | None:
    """Return the index that ``config`` names; None without a prefix cache."""
    from policies.prefix.block_hashes import BlockHashes
    from policies.prefix.prefix_tree import PrefixTree

    if not config.prefix_cache:
        return None
    index = BlockHashes if config.prefix_index == "hash" else PrefixTree
    return index(config.eviction)
