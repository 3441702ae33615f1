"""Waiting queues in the orders whose ranks are fixed on arrival, and by tenant."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter

from servetwin.policies.protocols import DiscardingQueue
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

_arrival_number = attrgetter("arrival_number")
UNUSED_SLACK = 64
"""Entries that a heap may hold beyond twice the number of those that wait."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ArrivalOrder:
    """First come, first served."""

    def __init__(self) -> None:
        self.size = 0
        self._arrived: deque[Sequence] = deque()  # by arrival number

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences."""
        return iter(self._arrived)

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        self.size += 1
        arrived, number = self._arrived, seq.arrival_number
        if not arrived or arrived[-1].arrival_number < number:
            arrived.append(seq)
        elif number < arrived[0].arrival_number:
            arrived.appendleft(seq)
        else:
            arrived.insert(bisect_left(arrived, number, key=_arrival_number), seq)

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        return self._arrived[0] if self._arrived else None

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        self.size -= 1
        return self._arrived.popleft()

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        return remove_request(self, request_id)

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""
        self.size -= 1
        del self._arrived[bisect_left(self._arrived, seq.arrival_number, key=_arrival_number)]

    def served(self, seq: Sequence) -> None:
        """Do nothing: this order counts no service."""


_Entry = tuple[float, int, int, Sequence]
"""(rank, arrival number, number of the entry, sequence)."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RankedQueue:
    """Smallest rank first, ties in order of arrival; the rank is fixed when a sequence comes."""

    def __init__(self) -> None:
        self.size = 0
        self._waiting: dict[Sequence, int] = {}
        """The number of the entry of each waiting sequence."""
        self._heap: list[_Entry] = []
        """Entries, those of discarded sequences too, though never as the first."""
        self._pushed = 0

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences, in no order."""
        return iter(self._waiting)

    def rank(self, seq: Sequence) -> float:
        """Return the rank of a sequence; the smallest goes first."""
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

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        return remove_request(self, request_id)

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


def remove_request(queue: DiscardingQueue, request_id: str) -> Sequence | None:
    """Remove and return the waiting sequence of a request; None when none waits."""
    seq = next((seq for seq in queue if seq.request_id == request_id), None)
    if seq is not None:
        queue.discard(seq)
    return seq


PROMPT_WEIGHT, OUTPUT_WEIGHT = 1, 2
"""Service of a tenant per token (Sheng et al., Fairness in Serving LLMs, OSDI 2024, section 4)."""


@mypyc_attr(allow_interpreted_subclasses=True)
class FairShare:
    """The tenant that was served least, then its oldest request: virtual token counters.

    A tenant that comes back is lifted to the least counter of the waiting tenants, so that idleness
    earns nothing (Sheng et al., OSDI 2024, algorithm 2). Prompts count when they are admitted,
    outputs when their sequence leaves the batch.

    The heap ranks tenants. Service and departures move one back, which is seen when its entry comes
    to the top; one that moves forward gets a new entry, and only its newest counts.
    """

    def __init__(self) -> None:
        self.size = 0
        self._served: dict[str | None, float] = {}
        self._queues: dict[str | None, ArrivalOrder] = {}
        """The sequences of each tenant that waits."""
        self._heap: list[tuple[float, int, int, str | None]] = []
        self._newest: dict[str | None, int] = {}
        self._entries = 0
        self._last = 0.0
        """The counter of the tenant whose sequence left the queue last."""

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences, tenant by tenant."""
        for queue in self._queues.values():
            yield from queue

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        queue = self._queues.get(seq.tenant)
        if queue is None:
            poorest, served = self.head(), self._served
            floor = self._last if poorest is None else served[poorest.tenant]
            served[seq.tenant] = max(served.get(seq.tenant, 0.0), floor)
            queue = self._queues[seq.tenant] = ArrivalOrder()
        self.size += 1
        queue.push(seq)
        if queue.head() is seq:
            self._enter(seq)

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        heap = self._heap
        while heap:
            served, number, entry, tenant = heap[0]
            queue = self._queues.get(tenant)
            head = queue.head() if queue and entry == self._newest[tenant] else None
            if head and head.arrival_number == number and self._served[tenant] == served:
                return head
            heappop(heap)
            if head:
                self._enter(head)
        return None

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        seq = self.head()
        assert seq is not None
        self.discard(seq)
        self._served[seq.tenant] += PROMPT_WEIGHT * (seq.prompt_tokens - seq.cached_tokens)
        return seq

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        return remove_request(self, request_id)

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""
        self.size -= 1
        self._last = self._served[seq.tenant]
        queue = self._queues[seq.tenant]
        queue.discard(seq)
        if not queue.size:
            del self._queues[seq.tenant]

    def served(self, seq: Sequence) -> None:
        """Count the output for the tenant."""
        self._served[seq.tenant] += OUTPUT_WEIGHT * seq.generated_tokens

    def _enter(self, head: Sequence) -> None:
        self._entries = self._newest[head.tenant] = self._entries + 1
        served = self._served[head.tenant]
        heappush(self._heap, (served, head.arrival_number, self._entries, head.tenant))
