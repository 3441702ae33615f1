"""Waiting queues in the orders whose ranks are fixed on arrival."""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from policies.schedulers.queue_protocol import DiscardingQueue
from policies.sequence import Sequence
from workloads.native_class import mypyc_attr

GONE_SLACK = 64
"""Discarded entries that a heap may hold beyond the number of waiting sequences."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ArrivalOrder:
    """First come, first served."""

    def __init__(self) -> None:
        self.size = 0
        self._line: deque[Sequence] = deque()  # by arrival number
        self._between: list[tuple[int, Sequence]] = []
        """Heap of sequences that came back and belong to neither end of the line."""

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences."""
        yield from self._line
        for _, seq in self._between:
            yield seq

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        self.size += 1
        line, number = self._line, seq.arrival_number
        if not line or line[-1].arrival_number < number:
            line.append(seq)
        elif number < line[0].arrival_number:
            line.appendleft(seq)
        else:
            heappush(self._between, (number, seq))

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        if self._between and self._is_next_between():
            return self._between[0][1]
        return self._line[0] if self._line else None

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        self.size -= 1
        if self._between and self._is_next_between():
            return heappop(self._between)[1]
        return self._line.popleft()

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        return remove_request(self, request_id)

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""
        self.size -= 1
        if self._line and self._line[-1] is seq:
            self._line.pop()
        elif seq in self._line:
            self._line.remove(seq)
        else:
            self._between.remove((seq.arrival_number, seq))
            heapify(self._between)

    def served(self, seq: Sequence) -> None:
        """Do nothing: this order counts no service."""

    def _is_next_between(self) -> bool:
        return not self._line or self._between[0][0] < self._line[0].arrival_number


@mypyc_attr(allow_interpreted_subclasses=True)
class RankedQueue:
    """Smallest rank first, ties in order of arrival; the rank is fixed when a sequence comes."""

    def __init__(self) -> None:
        self.size = 0
        self._heap: list[tuple[float, int, Sequence]] = []
        self._gone: set[Sequence] = set()
        """Discarded sequences that the heap still holds, though never as its head."""

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences, in no order."""
        return (seq for _, _, seq in self._heap if seq not in self._gone)

    def rank(self, seq: Sequence) -> float:
        """Return the rank of a sequence; the smallest goes first."""
        raise NotImplementedError

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        self.size += 1
        heappush(self._heap, (self.rank(seq), seq.arrival_number, seq))

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        return self._heap[0][2] if self._heap else None

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        self.size -= 1
        seq = heappop(self._heap)[2]
        if self._gone:
            self._drop_gone_heads()
        return seq

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        return remove_request(self, request_id)

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""
        self.size -= 1
        if self._heap[-1][2] is seq:  # as the newest mostly are
            self._heap.pop()
            return
        self._gone.add(seq)
        if len(self._gone) > self.size + GONE_SLACK:
            self._heap = [entry for entry in self._heap if entry[2] not in self._gone]
            heapify(self._heap)
            self._gone.clear()
        else:
            self._drop_gone_heads()

    def served(self, seq: Sequence) -> None:
        """Do nothing: this order counts no service."""

    def _drop_gone_heads(self) -> None:
        heap, gone = self._heap, self._gone
        while heap and heap[0][2] in gone:
            gone.remove(heappop(heap)[2])


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


def remove_request(queue: DiscardingQueue, request_id: str) -> Sequence | None:
    """Remove and return the waiting sequence of a request; None when none waits."""
    seq = next((seq for seq in queue if seq.request_id == request_id), None)
    if seq is not None:
        queue.discard(seq)
    return seq
