"""Waiting queues in the orders whose ranks are fixed on arrival."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter

from servetwin.policies.protocols import DiscardingQueue
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

_arrival_number = attrgetter("arrival_number")
UNUSED_SLACK = 64
"""Unused ranks that a heap may hold beyond the number of those in use."""


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
        line = self._line
        if line and line[-1] is seq:
            line.pop()
            return
        place = bisect_left(line, seq.arrival_number, key=_arrival_number)
        if place < len(line) and line[place] is seq:
            del line[place]
        else:
            self._between.remove((seq.arrival_number, seq))
            heapify(self._between)

    def served(self, seq: Sequence) -> None:
        """Do nothing: this order counts no service."""

    def _is_next_between(self) -> bool:
        return not self._line or self._between[0][0] < self._line[0].arrival_number


@mypyc_attr(allow_interpreted_subclasses=True)
class RankedQueue:
    """Smallest rank first, ties in order of arrival; the rank is fixed when a sequence comes.

    Only ranks are in a heap, each once: ties cost no comparison, however many wait.
    """

    def __init__(self) -> None:
        self.size = 0
        self._first: dict[float, Sequence] = {}
        """The sequence that is next at each rank."""
        self._behind: dict[float, ArrivalOrder] = {}
        """The other sequences of a rank, where there are some."""
        self._ranks: list[float] = []
        """Heap of the ranks in ``_first``, and of unused ones, though never as its head."""

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences, in no order."""
        yield from self._first.values()
        for line in self._behind.values():
            yield from line

    def rank(self, seq: Sequence) -> float:
        """Return the rank of a sequence; the smallest goes first."""
        raise NotImplementedError

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        rank = seq.queue_rank = self.rank(seq)
        first = self._first.get(rank)
        if first is None:
            if rank != rank:
                raise ValueError(f"the rank of request {seq.request_id} is not a number")
            self._first[rank] = seq
            heappush(self._ranks, rank)
        else:
            line = self._behind.get(rank)
            if line is None:
                line = self._behind[rank] = ArrivalOrder()
            if seq.arrival_number < first.arrival_number:
                self._first[rank], seq = seq, first
            line.push(seq)
        self.size += 1

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        return self._first[self._ranks[0]] if self._ranks else None

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        self.size -= 1
        rank, first = self._ranks[0], self._first
        line = self._behind.get(rank)
        if line is not None:
            seq = first[rank]
            first[rank] = line.pop()
            if not line.size:
                del self._behind[rank]
            return seq
        heappop(self._ranks)
        seq = first.pop(rank)
        if len(self._ranks) > len(first):
            self._drop_unused_ranks()
        return seq

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        return remove_request(self, request_id)

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""
        self.size -= 1
        rank = seq.queue_rank
        line, is_first = self._behind.get(rank), self._first[rank] is seq
        if line is None:
            assert is_first
            del self._first[rank]
            self._drop_unused_ranks()
            return
        if is_first:
            self._first[rank] = line.pop()
        else:
            line.discard(seq)
        if not line.size:
            del self._behind[rank]

    def served(self, seq: Sequence) -> None:
        """Do nothing: this order counts no service."""

    def _drop_unused_ranks(self) -> None:
        """Bring a rank that is used to the top, and forget the unused where they are the most."""
        ranks, first = self._ranks, self._first
        while ranks and ranks[0] not in first:
            heappop(ranks)
        if len(ranks) > 2 * len(first) + UNUSED_SLACK:
            self._ranks = list(first)
            heapify(self._ranks)


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


@dataclass(slots=True, eq=False)
class _Tenant:
    """A tenant's service and its waiting sequences.

    ``ticket`` numbers its entry in the heap (0 for none), which stands at (``ranked_served``,
    ``ranked_number``), at its true place or before it.
    """

    served: float = 0.0
    line: ArrivalOrder = field(default_factory=ArrivalOrder)
    ticket: int = 0
    ranked_served: float = 0.0
    ranked_number: int = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class FairShare:
    """The tenant that was served least, then its oldest request: virtual token counters.

    A tenant that comes back is lifted to the least counter of the waiting tenants, so that idleness
    earns nothing (Sheng et al., OSDI 2024, algorithm 2). Prompts count when they are admitted,
    outputs when their sequence leaves the batch.

    The heap ranks tenants. Service and departures move a tenant back, which is seen when its entry
    comes to the top; only a tenant that moves forward gets a new entry.
    """

    def __init__(self) -> None:
        self.size = 0
        self._tenants: dict[str | None, _Tenant] = {}
        self._heap: list[tuple[float, int, int, _Tenant]] = []
        self._tickets = 0
        self._last = 0.0
        """The counter of the tenant whose sequence left the queue last."""

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences, tenant by tenant."""
        for tenant in self._tenants.values():
            yield from tenant.line

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        tenant = self._tenants.get(seq.tenant)
        if tenant is None:
            tenant = self._tenants[seq.tenant] = _Tenant()
        if not tenant.line.size:
            poorest = self._poorest()
            tenant.served = max(tenant.served, poorest.served if poorest else self._last)
        self.size += 1
        tenant.line.push(seq)
        number = self._oldest(tenant)
        if not tenant.ticket or (tenant.served, number) < (
            tenant.ranked_served,
            tenant.ranked_number,
        ):
            heappush(self._heap, self._entry(tenant, number))

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        tenant = self._poorest()
        return tenant.line.head() if tenant else None

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        tenant = self._poorest()
        assert tenant is not None
        self.size -= 1
        seq = tenant.line.pop()
        self._last = tenant.served
        tenant.served += PROMPT_WEIGHT * (seq.prompt_tokens - seq.cached_tokens)
        return seq

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        return remove_request(self, request_id)

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""
        self.size -= 1
        tenant = self._tenants[seq.tenant]
        tenant.line.discard(seq)
        self._last = tenant.served

    def served(self, seq: Sequence) -> None:
        """Count the output for the tenant."""
        self._tenants[seq.tenant].served += OUTPUT_WEIGHT * seq.generated_tokens

    def _poorest(self) -> _Tenant | None:
        """Return the tenant that is next; correct the entries above its own that no longer hold."""
        heap = self._heap
        while heap:
            served, number, ticket, tenant = heap[0]
            if ticket != tenant.ticket:
                heappop(heap)
            elif not tenant.line.size:
                tenant.ticket = 0
                heappop(heap)
            else:
                oldest = self._oldest(tenant)
                if served == tenant.served and number == oldest:
                    return tenant
                heapreplace(heap, self._entry(tenant, oldest))
        return None

    def _entry(self, tenant: _Tenant, number: int) -> tuple[float, int, int, _Tenant]:
        self._tickets = tenant.ticket = self._tickets + 1
        tenant.ranked_served, tenant.ranked_number = tenant.served, number
        return tenant.served, number, tenant.ticket, tenant

    def _oldest(self, tenant: _Tenant) -> int:
        head = tenant.line.head()
        assert head is not None
        return head.arrival_number
