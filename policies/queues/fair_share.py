"""Fair shares: the tenant that was served least goes first."""

from collections.abc import Iterator
from heapq import heappop, heappush

from servetwin.policies.queues.arrival_order import ArrivalOrder
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

# Service of a tenant per token (Sheng et al., Fairness in Serving LLMs, OSDI 2024, section 4).
PROMPT_WEIGHT, OUTPUT_WEIGHT = 1, 2


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
        # The sequences of each tenant that waits.
        self._queues: dict[str | None, ArrivalOrder] = {}
        self._heap: list[tuple[float, int, int, str | None]] = []
        self._newest: dict[str | None, int] = {}
        self._entries = 0
        # The counter of the tenant whose sequence left the queue last.
        self._last = 0.0

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
