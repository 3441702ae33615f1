"""Waiting queues in the orders whose ranks are fixed on arrival."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import ClassVar

from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

# Entries that a heap may hold beyond twice the number of those that wait.
UNUSED_SLACK = 64
# (rank, arrival number, number of the entry, sequence).
_Entry = tuple[float, int, int, Sequence]


@mypyc_attr(allow_interpreted_subclasses=True)
class RankedQueue:
    """Smallest rank first, ties in order of arrival; the rank is fixed when a sequence comes."""

    ranks_are_fixed: ClassVar[bool] = True

    def __init__(self) -> None:
        self.size = 0
        # The number of the entry of each waiting sequence.
        self._waiting: dict[Sequence, int] = {}
        # Entries, those of discarded sequences too, though never as the first.
        self._heap: list[_Entry] = []
        self._pushed = 0

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences, in no order."""
        return iter(self._waiting)

    def rank(self, seq: Sequence) -> float:
        """Return the rank of a sequence; the smallest goes first. Every order defines its own."""
        raise NotImplementedError

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        rank = self.rank(seq)
        if rank != rank:
            raise ValueError(f"the rank of request {seq.request_id} is not a number")
        self._waiting[seq] = self._pushed = self._pushed + 1
        heappush(self._heap, (rank, seq.arrival_number, self._pushed, seq))
        self.size += 1

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        return self._heap[0][3] if self._heap else None

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        self.size -= 1
        seq = heappop(self._heap)[3]
        del self._waiting[seq]
        if len(self._heap) > self.size:
            self._drop_discarded()
        return seq

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""
        self.size -= 1
        del self._waiting[seq]
        self._drop_discarded()

    def served(self, seq: Sequence) -> None:
        """Do nothing: this order counts no service."""

    def _drop_discarded(self) -> None:
        """Bring an entry that waits to the top; forget the others where they are the most."""
        heap, waiting = self._heap, self._waiting
        while heap and waiting.get(heap[0][3]) != heap[0][2]:
            heappop(heap)
        if len(heap) > 2 * self.size + UNUSED_SLACK:
            self._heap = [entry for entry in heap if waiting.get(entry[3]) == entry[2]]
            heapify(self._heap)


@mypyc_attr(allow_interpreted_subclasses=True)
class ShortestJobFirst(RankedQueue):
    """By the declared estimate of the output, never by the true length."""

    def rank(self, seq: Sequence) -> float:
        """Return the tokens to compute, as declared."""
        return seq.prompt_tokens + seq.estimated_tokens


@mypyc_attr(allow_interpreted_subclasses=True)
class PriorityFirst(RankedQueue):
    """The highest priority first."""

    def rank(self, seq: Sequence) -> float:
        """Return the negated priority."""
        return -seq.priority


@mypyc_attr(allow_interpreted_subclasses=True)
class EarliestDeadlineFirst(RankedQueue):
    """By the moment at which the first token is due; without one, last."""

    def rank(self, seq: Sequence) -> float:
        """Return the deadline in seconds."""
        return seq.deadline_s
