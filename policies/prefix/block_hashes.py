"""Prefix sharing by block hash (vLLM, SOSP 2023): a flat table, one entry per block.

A block that is full of prompt tokens is remembered by its chained key; the first block with a key
keeps it. Every block is on its own: a prefix may go while its continuation stays, which then
cannot be reached until the prefix has been computed again. Blocks of generated tokens are not
remembered: a trace names the blocks of prompts only, and the simulator must see the same hits as
the engine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from policies.block_keys import BlockKey
from policies.prefix.eviction import EvictionRank
from policies.sequence import Sequence


@dataclass(slots=True, eq=False)
class _Entry:
    key: BlockKey | None
    """None where no key names the blocks: they cannot be found, but stay until evicted."""
    blocks: list[int]
    """One block; or all the consecutive ones of a prompt that no key names."""
    born: int
    holders: int = 1
    uses: int = 1
    rank: tuple[float, int] | None = None
    """Place in the order of eviction; None while a sequence holds the block."""


class BlockHashes:
    """Maps prefixes to blocks, and knows which blocks are idle."""

    def __init__(self, eviction: str) -> None:
        self.idle_blocks = 0
        self.held_blocks = 0
        self._rank = EvictionRank(eviction)
        self._entries: dict[BlockKey, _Entry] = {}
        self._held: dict[Sequence, dict[int, _Entry]] = {}  # by place in the block table
        self._idle: list[tuple[tuple[float, int], _Entry]] = []  # heap

    def find(self, seq: Sequence, limit: int) -> tuple[int, int]:
        """Return (blocks found, idle ones among them) of the prompt's first ``limit`` blocks."""
        found = self._match(seq, limit)
        return len(found), sum(entry.rank is not None for entry in found)

    def hold(self, seq: Sequence, limit: int) -> list[int]:
        """Hold what ``find`` finds; return the blocks, in the order of positions."""
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
        return [entry.blocks[0] for entry in found]

    def share(self, seq: Sequence, child: Sequence) -> list[int]:
        """``child`` holds what ``seq`` holds in the table, up to the first block of its own."""
        shared = dict(self._leading(seq))
        for entry in shared.values():
            entry.holders += 1
            entry.uses += 1
        self._held[child] = shared
        child.keyed_blocks = sum(len(entry.blocks) for entry in shared.values())
        return seq.blocks[: child.keyed_blocks]

    def held(self, seq: Sequence) -> int:
        """Return how many leading blocks ``share`` would share."""
        return sum(len(entry.blocks) for _, entry in self._leading(seq))

    def _leading(self, seq: Sequence) -> Iterator[tuple[int, _Entry]]:
        """What the sequence holds through the table, up to the first block of its own."""
        end = 0
        for place, entry in sorted(self._held.get(seq, {}).items(), key=lambda item: item[0]):
            if place != end:
                return
            yield place, entry
            end += len(entry.blocks)

    def insert(self, seq: Sequence, blocks: int) -> None:
        """Remember the blocks among the first ``blocks`` whose key is new."""
        held = self._held.setdefault(seq, {})
        place = seq.keyed_blocks
        while place < blocks and (key := seq.key_of_block(place)) is not None:
            if key not in self._entries:
                self._entries[key] = self._hold_new(held, key, place, seq.blocks[place : place + 1])
            place += 1
        if place < blocks:
            last = held.get(next(reversed(held), -1))
            if last is not None and last.key is None:
                last.blocks += seq.blocks[place:blocks]
                self.held_blocks += blocks - place
            else:
                self._hold_new(held, None, place, seq.blocks[place:blocks])
        seq.keyed_blocks = max(seq.keyed_blocks, blocks)

    def _hold_new(
        self, held: dict[int, _Entry], key: BlockKey | None, place: int, blocks: list[int]
    ) -> _Entry:
        entry = held[place] = _Entry(key, blocks, self._rank.tick())
        self.held_blocks += len(blocks)
        return entry

    def release(self, seq: Sequence) -> list[int]:
        """Let go, the tail first, so that prefixes outlive their continuations."""
        held = self._held.pop(seq, {})
        private = self._private(seq, held)
        for place in sorted(held, reverse=True):
            entry = held[place]
            entry.holders -= 1
            if not entry.holders:
                entry.rank = self._rank.of(entry.uses, entry.born)
                heappush(self._idle, (entry.rank, entry))
                self.idle_blocks += len(entry.blocks)
                self.held_blocks -= len(entry.blocks)
        seq.keyed_blocks = 0
        return private

    def evict(self, blocks: int) -> list[int]:
        """Forget so many idle blocks and return them."""
        evicted: list[int] = []
        while len(evicted) < blocks:
            rank, entry = self._idle[0]
            if entry.rank != rank:
                heappop(self._idle)
                continue
            taken = entry.blocks[-(blocks - len(evicted)) :]
            del entry.blocks[-len(taken) :]
            evicted += reversed(taken)
            if not entry.blocks:
                heappop(self._idle)
                entry.rank = None
                if entry.key is not None:
                    del self._entries[entry.key]
        self.idle_blocks -= blocks
        return evicted

    def keyed(self, seq: Sequence) -> set[int]:
        """Return the blocks that the sequence holds through this index."""
        return {block for entry in self._held.get(seq, {}).values() for block in entry.blocks}

    @staticmethod
    def _private(seq: Sequence, held: dict[int, _Entry]) -> list[int]:
        """The rest of the block table: duplicates of what others keep, and what is not shared."""
        private: list[int] = []
        place = 0
        for start, entry in sorted(held.items(), key=lambda item: item[0]):
            private += seq.blocks[place:start]
            place = start + len(entry.blocks)
        return private + seq.blocks[place:]

    def _match(self, seq: Sequence, limit: int) -> list[_Entry]:
        found = []
        for place in range(limit):
            key = seq.key_of_block(place)
            entry = None if key is None else self._entries.get(key)
            if entry is None:
                break
            found.append(entry)
        return found
