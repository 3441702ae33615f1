"""Which of some prompts has most tokens in the prefix cache."""

from heapq import heapify, heappop, heappush
from typing import Protocol

from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.prefix.prefix_watch import PrefixWatch
from servetwin.policies.protocols import KVMemory
from servetwin.policies.sequence import Sequence

_HEAP_SLACK = 64


class PrefixMatches(Protocol):
    """Compares the prompts of some waiting sequences."""

    def enter(self, seq: Sequence) -> None:
        """Compare one more."""

    def leave(self, seq: Sequence) -> None:
        """Compare one less."""

    def longest(self) -> Sequence | None:
        """Return the sequence with most cached tokens, of equals the first to arrive."""


class SoughtMatches:
    """Asks the memory for every match at every decision: right for any memory."""

    def __init__(self, memory: KVMemory) -> None:
        self._memory = memory
        self._seqs: dict[Sequence, None] = {}

    def enter(self, seq: Sequence) -> None:
        """Compare one more."""
        self._seqs[seq] = None

    def leave(self, seq: Sequence) -> None:
        """Compare one less."""
        del self._seqs[seq]

    def longest(self) -> Sequence | None:
        """Return the sequence with most cached tokens, of equals the first to arrive."""
        return min(self._seqs, key=self._rank, default=None)

    def _rank(self, seq: Sequence) -> tuple[int, int]:
        return -self._memory.cached_prefix(seq), seq.arrival_number


class WatchedMatches:
    """Asks again for the matches that may have changed; the others stand in a heap."""

    def __init__(self, memory: PagedKV, watch: PrefixWatch) -> None:
        self._memory = memory
        self._watch = watch
        self._blocks: dict[Sequence, int] = {}
        self._heap: list[tuple[int, int, Sequence]] = []
        """(- blocks, arrival number, sequence); entries that no longer hold included."""

    def enter(self, seq: Sequence) -> None:
        """Compare one more."""
        blocks, causes = self._memory.watched_prefix(seq)
        self._watch.begin(seq, causes)
        if self._blocks.get(seq) != blocks:
            self._blocks[seq] = blocks
            heappush(self._heap, (-blocks, seq.arrival_number, seq))

    def leave(self, seq: Sequence) -> None:
        """Compare one less."""
        self._watch.end(seq)
        del self._blocks[seq]
        if len(self._heap) > 2 * len(self._blocks) + _HEAP_SLACK:
            known = self._blocks.items()
            self._heap = [(-blocks, seq.arrival_number, seq) for seq, blocks in known]
            heapify(self._heap)

    def longest(self) -> Sequence | None:
        """Return the sequence with most cached tokens, of equals the first to arrive."""
        for seq in self._watch.take_changed():
            self.enter(seq)
        heap = self._heap
        while heap:
            negated, _, seq = heap[0]
            if self._blocks.get(seq) == -negated:
                return seq
            heappop(heap)
        return None


def matches_in(memory: KVMemory) -> PrefixMatches:
    """Return the cheapest comparison that is right for a memory."""
    if isinstance(memory, PagedKV) and type(memory) is PagedKV:
        watch = memory.watch_prefixes()
        if watch is not None:
            return WatchedMatches(memory, watch)
    return SoughtMatches(memory)
