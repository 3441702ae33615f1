"""The index of a prefix cache, and which one a configuration names."""

from collections.abc import Iterator
from typing import Protocol

from servetwin.policies.config import PolicyConfig
from servetwin.policies.prefix.block_runs import BlockRuns
from servetwin.policies.prefix.prefix_run import HeldRun
from servetwin.policies.prefix.prefix_tree import PrefixTree
from servetwin.policies.sequence import Sequence


class PrefixIndex(Protocol):
    """Knows which blocks hold which prefix, which sequences hold them, and which go first.

    The index has seen the leading ``keyed_blocks`` of a sequence's block table. A sequence holds
    runs of them through the index. Blocks that no sequence holds are *idle*: they
    can be found until their room is needed. The index counts blocks. They get numbers when a table
    needs them.
    """

    idle_blocks: int
    held_blocks: int

    def find(self, seq: Sequence, limit: int) -> tuple[int, int]:
        """Return (blocks found, idle ones among them) of the prompt's first ``limit`` blocks."""

    def hold(self, seq: Sequence, limit: int) -> None:
        """Hold what ``find`` finds."""

    def share(self, seq: Sequence, child: Sequence) -> None:
        """Let ``child`` hold what ``seq`` holds through the index."""

    def insert(self, seq: Sequence, blocks: int) -> None:
        """Note that the prompt fills the first ``blocks`` of the sequence, now or before."""

    def release(self, seq: Sequence) -> tuple[int, list[int]]:
        """Let go; return how many blocks the sequence held, and the numbers of its others."""

    def evict(self, blocks: int) -> list[int]:
        """Forget so many idle blocks; return the numbers of the blocks that have one."""

    def runs(self, seq: Sequence) -> Iterator[HeldRun]:
        """Yield the runs that the sequence holds, the last first."""


def build_index(config: PolicyConfig) -> PrefixIndex:
    """Return the index that ``config`` names, which has a prefix cache."""
    if config.prefix_index == "blocks":
        return BlockRuns(config.eviction, config.block_tokens)
    return PrefixTree(config.eviction)
