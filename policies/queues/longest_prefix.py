"""Longest prefix first, among the first few waiting sequences."""

from bisect import insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain

from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.protocols import KVMemory
from servetwin.policies.queues.arrival_order import ArrivalOrder, arrival_number
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

_HEAP_SLACK = 64


class PrefixMatches:
    """Compares the prompts of some waiting sequences.

    A memory that watches its prefixes is asked again for the matches that may have changed, and
    the others stand in a heap. Any other memory is asked for every match at every decision.
    """

    def __init__(self, memory: KVMemory) -> None:
        self._memory = memory
        self._tree = memory.prefix_tree() if type(memory) is PagedKV else None
        self._watch = None if self._tree is None else self._tree.watch()
        # Matched blocks by compared sequence; 0 where all are asked for.
        self._blocks: dict[Sequence, int] = {}
        # (- blocks, arrival number, sequence); entries that no longer hold included.
        self._heap: list[tuple[int, int, Sequence]] = []

    def enter(self, seq: Sequence) -> None:
        """Compare one more."""
        if self._tree is None or self._watch is None:
            self._blocks[seq] = 0
            return
        limit = (seq.prompt_tokens - 1) // self._memory.block_tokens
        blocks, causes = self._tree.match(seq, limit)
        self._watch.begin(seq, causes)
        if self._blocks.get(seq) != blocks:
            self._blocks[seq] = blocks
            heappush(self._heap, (-blocks, seq.arrival_number, seq))

    def leave(self, seq: Sequence) -> None:
        """Compare one less."""
        del self._blocks[seq]
        if self._watch is not None:
            self._watch.end(seq)
        if len(self._heap) > 2 * len(self._blocks) + _HEAP_SLACK:
            known = self._blocks.items()
            self._heap = [(-blocks, seq.arrival_number, seq) for seq, blocks in known]
            heapify(self._heap)

    def longest(self) -> Sequence | None:
        """Return the sequence with most cached tokens, of equals the first to arrive."""
        if self._watch is None:
            return min(self._blocks, key=self._rank, default=None)
        for seq in self._watch.take_changed():
            self.enter(seq)
        heap = self._heap
        while heap:
            negated, _, seq = heap[0]
            if self._blocks.get(seq) == -negated:
                return seq
            heappop(heap)
        return None

    def _rank(self, seq: Sequence) -> tuple[int, int]:
        return -self._memory.cached_prefix(seq), seq.arrival_number


# Waiting sequences that longest prefix first compares, as SGLang does; the rest is FCFS.
SCANNED_HEADS = 128


@mypyc_attr(allow_interpreted_subclasses=True)
class LongestPrefixFirst:
    """The sequence with most of its prompt in the cache now (SGLang, 2024), among the first few."""

    def __init__(self, memory: KVMemory) -> None:
        self._heads: list[Sequence] = []  # by arrival number
        self._matches = PrefixMatches(memory)
        self._rest = ArrivalOrder()

    @property
    def size(self) -> int:
        """The number of waiting sequences."""
        return len(self._heads) + self._rest.size

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences."""
        return chain(self._heads, self._rest)

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        heads = self._heads
        if len(heads) == SCANNED_HEADS and seq.arrival_number > heads[-1].arrival_number:
            self._rest.push(seq)
            return
        insort(heads, seq, key=arrival_number)
        self._matches.enter(seq)
        if len(heads) > SCANNED_HEADS:
            last = heads.pop()
            self._matches.leave(last)
            self._rest.push(last)

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        return self._matches.longest()

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        head = self.head()
        assert head is not None
        self.discard(head)
        return head

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""
        if seq not in self._heads:
            self._rest.discard(seq)
            return
        self._heads.remove(seq)
        self._matches.leave(seq)
        if self._rest.size:
            following = self._rest.pop()
            self._heads.append(following)
            self._matches.enter(following)

    def served(self, seq: Sequence) -> None:
        """Do nothing: this order counts no service."""
