"""Prefix sharing by block hash (vLLM, SOSP 2023): a flat table, one entry per block.

A block that is full of prompt tokens is remembered by its chained key; the first block with a key
keeps it. Every block is on its own: a prefix may go while its continuation stays, which then
cannot be reached until the prefix has been computed again. Blocks of generated tokens are not
remembered: a trace names the blocks of prompts only, and the simulator must see the same hits as
the engine.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

from policies.block_keys import BlockKey, key_of_block
from policies.config import Eviction
from policies.prefix_index import EvictionRank
from policies.sequence import Sequence


@dataclass(slots=True, eq=False)
class _Entry:
    key: BlockKey | None
    """None where no key names the block: nobody can find it, but it stays until evicted."""
    block: int
    born: int
    holders: int = 1
    uses: int = 1
    rank: tuple[int, int] | None = None
    """Place in the order of eviction; None while somebody holds the block."""


class BlockHashes:
    """Which block holds which prefix, and which of them nobody uses."""

    def __init__(self, eviction: Eviction) -> None:
        self.idle_blocks = 0
        self.held_blocks = 0
        self._rank = EvictionRank(eviction)
        self._entries: dict[BlockKey, _Entry] = {}
        self._held: dict[Sequence, dict[int, _Entry]] = {}  # by place in the block table
        self._idle: list[tuple[tuple[int, int], int, _Entry]] = []  # heap

    def find(self, seq: Sequence, limit: int) -> tuple[int, int]:
        """(blocks found, idle ones among them) of the prompt's first ``limit`` blocks."""
        found = self._match(seq, limit)
        return len(found), sum(entry.rank is not None for entry in found)

    def hold(self, seq: Sequence, limit: int) -> list[int]:
        """Hold what ``find`` finds; the blocks, in the order of positions."""
        found = self._match(seq, limit)
        for entry in found:
            if entry.rank is not None:
                entry.rank = None
                self.idle_blocks -= 1
                self.held_blocks += 1
            entry.holders += 1
            entry.uses += 1
        self._held[seq] = dict(enumerate(found))
        seq.keyed_blocks = len(found)
        return [entry.block for entry in found]

    def insert(self, seq: Sequence, blocks: int) -> None:
        """Remember those among the first ``blocks`` whose key is new."""
        held = self._held.setdefault(seq, {})
        for place in range(seq.keyed_blocks, blocks):
            key = key_of_block(seq, place)
            if key is None or key not in self._entries:
                entry = held[place] = _Entry(key, seq.blocks[place], self._rank.tick())
                self.held_blocks += 1
                if key is not None:
                    self._entries[key] = entry
        seq.keyed_blocks = max(seq.keyed_blocks, blocks)

    def release(self, seq: Sequence) -> list[int]:
        """Let go, the tail first, so that prefixes outlive their continuations."""
        held = self._held.pop(seq, {})
        for place in sorted(held, reverse=True):
            entry = held[place]
            entry.holders -= 1
            if not entry.holders:
                entry.rank = self._rank.of(entry.uses, entry.born)
                heappush(self._idle, (entry.rank, entry.block, entry))
                self.idle_blocks += 1
                self.held_blocks -= 1
        seq.keyed_blocks = 0
        return [block for place, block in enumerate(seq.blocks) if place not in held]

    def evict(self, blocks: int) -> list[int]:
        """Forget so many idle blocks and hand them out."""
        evicted: list[int] = []
        while len(evicted) < blocks:
            rank, _, entry = heappop(self._idle)
            if entry.rank == rank:
                entry.rank = None
                if entry.key is not None:
                    del self._entries[entry.key]
                evicted.append(entry.block)
        self.idle_blocks -= blocks
        return evicted

    def keyed(self, seq: Sequence) -> set[int]:
        """Blocks that the sequence holds through this index."""
        return {entry.block for entry in self._held.get(seq, {}).values()}

    def _match(self, seq: Sequence, limit: int) -> list[_Entry]:
        found = []
        for place in range(limit):
            key = key_of_block(seq, place)
            entry = None if key is None else self._entries.get(key)
            if entry is None:
                break
            found.append(entry)
        return found
