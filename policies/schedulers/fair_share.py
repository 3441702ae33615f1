"""Fair share: the tenant that was served least goes first, at a cost that no tenant adds to."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace

from servetwin.policies.schedulers.waiting_queue import ArrivalOrder, remove_request
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

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
