"""Waiting queues as plain lists: slow, and plainly right."""

from collections.abc import Iterator
from operator import attrgetter

from servetwin.policies.config import QueueOrder
from servetwin.policies.protocols import KVMemory, Refusal
from servetwin.policies.queues.intake import Intake
from servetwin.policies.sequence import Sequence

arrival_number = attrgetter("arrival_number")


class ReferenceQueue:
    """All that wait, in a list; the next is sought anew each time."""

    def __init__(self, order: QueueOrder, memory: KVMemory | None = None) -> None:
        self.waiting: list[Sequence] = []
        self._order = order
        self._memory = memory
        self._served: dict[str | None, float] = {}
        self._last = 0.0

    @property
    def size(self) -> int:
        return len(self.waiting)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self.waiting)

    def push(self, seq: Sequence) -> None:
        tenants = {other.tenant for other in self.waiting}
        if seq.tenant not in tenants:
            floor = min((self._served[tenant] for tenant in tenants), default=self._last)
            self._served[seq.tenant] = max(self._served.get(seq.tenant, 0.0), floor)
        self.waiting.append(seq)

    def head(self) -> Sequence | None:
        if not self.waiting:
            return None
        if self._order == "longest-prefix":
            assert self._memory is not None
            first = sorted(self.waiting, key=arrival_number)[:128]
            return max(first, key=self._memory.cached_prefix)
        return min(self.waiting, key=self._rank)

    def pop(self) -> Sequence:
        seq = self.head()
        assert seq is not None
        self._take(seq)
        self._served[seq.tenant] += seq.prompt_tokens - seq.cached_tokens
        return seq

    def discard(self, seq: Sequence) -> None:
        self._take(seq)

    def served(self, seq: Sequence) -> None:
        self._served[seq.tenant] += 2 * seq.generated_tokens

    def _take(self, seq: Sequence) -> None:
        self.waiting.remove(seq)
        if all(other.tenant != seq.tenant for other in self.waiting):
            self._last = self._served[seq.tenant]

    def _rank(self, seq: Sequence) -> tuple[float, int]:
        ranks: dict[str, float] = {
            "fcfs": 0,
            "sjf": seq.prompt_tokens + seq.estimated_tokens,
            "priority": -seq.priority,
            "edf": seq.deadline_s,
            "fair": self._served[seq.tenant],
        }
        return ranks[self._order], seq.arrival_number


class ReferenceIntake(Intake):
    """Sorts all that wait, whenever too many do."""

    def enforce_limit(self) -> None:
        limit, queue = self._limit, self.queue
        if limit is None or queue.size <= limit:
            return
        fresh = [s for s in queue if not (s.preemptions or _is_later(s) or s.computed_tokens)]
        dropped = []
        for seq in sorted(fresh, key=arrival_number, reverse=True):
            if queue.size > limit:
                for each in [each for each in queue if each.request_id == seq.request_id]:
                    queue.discard(each)
                dropped.append(seq)
        full = Refusal("queue_full", f"{limit} requests are waiting already")
        self.dropped += [(seq, full) for seq in reversed(dropped)]


def _is_later(seq: Sequence) -> bool:
    """Whether it is another sample than the first, with which a request is turned away."""
    return seq.siblings is not None and seq.siblings.first is not seq
