"""A prefix index as a flat table with one entry per block: slow, and plainly right."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from servetwin.policies.block_keys import BlockKey
from servetwin.policies.prefix.prefix_run import PrefixRun
from servetwin.policies.prefix.run_index import EvictionRank
from servetwin.policies.sequence import Sequence


@dataclass(slots=True, eq=False)
class Entry:
    """A block with a key; or all the consecutive ones of a prompt that no key names."""

    key: BlockKey | None
    size: int
    born: int
    holders: int = 1
    uses: int = 1
    rank: tuple[float, int] | None = None


class ReferenceIndex:
    """Decides as vLLM's table of block hashes; blocks have no numbers here."""

    def __init__(self, eviction: str) -> None:
        self.idle_blocks = 0
        self.held_blocks = 0
        self._rank = EvictionRank(eviction)
        self._entries: dict[BlockKey, Entry] = {}
        self._held: dict[Sequence, dict[int, Entry]] = {}  # by place
        self._idle: list[Entry] = []

    def find(self, seq: Sequence, limit: int) -> tuple[int, int]:
        found = self._match(seq, limit)
        return len(found), sum(entry.rank is not None for entry in found)

    def hold(self, seq: Sequence, limit: int) -> None:
        found = self._match(seq, limit)
        for entry in found:
            if entry.rank is not None:
                entry.rank = None
                self._idle.remove(entry)
                self.idle_blocks -= 1
                self.held_blocks += 1
            entry.holders += 1
            entry.uses += 1
        self._held[seq] = dict(enumerate(found))
        seq.keyed_blocks = len(found)

    def held(self, seq: Sequence) -> int:
        return sum(entry.size for entry in self._leading(seq).values())

    def share(self, seq: Sequence, child: Sequence) -> None:
        shared = self._leading(seq)
        for entry in shared.values():
            entry.holders += 1
            entry.uses += 1
        self._held[child] = shared
        child.keyed_blocks = sum(entry.size for entry in shared.values())

    def insert(self, seq: Sequence, blocks: int) -> None:
        held = self._held.setdefault(seq, {})
        place = seq.keyed_blocks
        while place < blocks and (key := seq.key_of_block(place)) is not None:
            if key not in self._entries:
                self._entries[key] = held[place] = Entry(key, 1, self._rank.tick())
                self.held_blocks += 1
            place += 1
        if place < blocks:
            self.held_blocks += blocks - place
            last = held[max(held)] if held else None
            if last is not None and last.key is None:
                last.size += blocks - place
            else:
                held[place] = Entry(None, blocks - place, self._rank.tick())
        seq.keyed_blocks = max(seq.keyed_blocks, blocks)

    def release(self, seq: Sequence) -> tuple[int, list[int]]:
        released = 0
        for _, entry in sorted(self._held.pop(seq, {}).items(), key=lambda item: -item[0]):
            released += entry.size
            entry.holders -= 1
            if not entry.holders:
                entry.rank = self._rank.of(entry.uses, entry.born)
                self._idle.append(entry)
                self.idle_blocks += entry.size
                self.held_blocks -= entry.size
        seq.keyed_blocks = 0
        return released, []

    def evict(self, blocks: int) -> list[int]:
        self.idle_blocks -= blocks
        while blocks:
            entry = min(self._idle, key=lambda entry: entry.rank or (0.0, 0))
            taken = min(blocks, entry.size)
            blocks -= taken
            entry.size -= taken
            if not entry.size:
                self._idle.remove(entry)
                entry.rank = None
                if entry.key is not None:
                    del self._entries[entry.key]
        return []

    def runs(self, seq: Sequence) -> Iterator[PrefixRun]:
        raise NotImplementedError

    def number(self, seq: Sequence, take: Callable[[int], list[int]]) -> None:
        raise NotImplementedError

    def _leading(self, seq: Sequence) -> dict[int, Entry]:
        leading: dict[int, Entry] = {}
        end = 0
        for place, entry in sorted(self._held.get(seq, {}).items(), key=lambda item: item[0]):
            if place == end:
                leading[place] = entry
                end += entry.size
        return leading

    def _match(self, seq: Sequence, limit: int) -> list[Entry]:
        found: list[Entry] = []
        for place in range(limit):
            key = seq.key_of_block(place)
            if key is None or key not in self._entries:
                break
            found.append(self._entries[key])
        return found
