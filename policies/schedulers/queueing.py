"""Waiting queues and their orders; refusals, and the limit on the queue."""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import chain, filterfalse
from operator import attrgetter
from typing import Protocol

from policies.config import PolicyConfig
from policies.protocols import KVMemory, Refusal
from policies.sequence import Sequence
from workloads.native_class import mypyc_attr

SCANNED_HEADS = 128
"""Waiting sequences that longest prefix first compares, as SGLang does; the rest is FCFS."""
PROMPT_WEIGHT, OUTPUT_WEIGHT = 1, 2
"""Service of a tenant per token (Sheng et al., Fairness in Serving LLMs, OSDI 2024, section 4)."""


class WaitingQueue(Protocol):
    """Holds the waiting sequences. A preempted one keeps the place that its arrival gave it."""

    @property
    def size(self) -> int:
        """The number of waiting sequences."""

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences, in no order."""

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""

    def served(self, seq: Sequence) -> None:
        """Learn that a popped sequence has ended."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ArrivalOrder:
    """First come, first served."""

    def __init__(self) -> None:
        self.size = 0
        self._line: deque[Sequence] = deque()  # by arrival number

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences."""
        return iter(self._line)

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        self.size += 1
        if self._line and self._line[-1].arrival_number > seq.arrival_number:
            _insert(self._line, seq)
        else:
            self._line.append(seq)

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        return self._line[0] if self._line else None

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        self.size -= 1
        return self._line.popleft()

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        seq = _removed(self._line, request_id)
        self.size = len(self._line)
        return seq

    def served(self, seq: Sequence) -> None:
        """Do nothing: this order counts no service."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RankedQueue:
    """Smallest rank first, ties in order of arrival; the rank is fixed when a sequence comes."""

    def __init__(self) -> None:
        self.size = 0
        self._heap: list[tuple[float, int, Sequence]] = []

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences, in no order."""
        return (seq for _, _, seq in self._heap)

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
        return heappop(self._heap)[2]

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        for index, (_, _, seq) in enumerate(self._heap):
            if seq.request_id == request_id:
                del self._heap[index]
                self._heap.sort()
                self.size -= 1
                return seq
        return None

    def served(self, seq: Sequence) -> None:
        """Do nothing: this order counts no service."""


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


@mypyc_attr(allow_interpreted_subclasses=True)
class LongestPrefixFirst:
    """The sequence with most of its prompt in the cache now (SGLang, 2024), among the first few."""

    def __init__(self, memory: KVMemory) -> None:
        self._memory = memory
        self._waiting: list[Sequence] = []  # by arrival number

    @property
    def size(self) -> int:
        """The number of waiting sequences."""
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences."""
        return iter(self._waiting)

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        _insert(self._waiting, seq)

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        heads = self._waiting[:SCANNED_HEADS]
        return max(heads, key=self._memory.cached_prefix, default=None)

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        head = self.head()
        assert head is not None
        self._waiting.remove(head)
        return head

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        return _removed(self._waiting, request_id)

    def served(self, seq: Sequence) -> None:
        """Do nothing: this order counts no service."""


@mypyc_attr(allow_interpreted_subclasses=True)
class FairShare:
    """The tenant that was served least, then its oldest request: virtual token counters.

    A tenant that comes back is lifted to the least counter of the waiting tenants, so that idleness
    earns nothing (Sheng et al., OSDI 2024, algorithm 2). Prompts count when they are admitted,
    outputs when their sequence leaves the batch.
    """

    def __init__(self) -> None:
        self._waiting: dict[str | None, deque[Sequence]] = {}
        self._served: dict[str | None, float] = {}
        self._last = 0.0

    @property
    def size(self) -> int:
        """The number of waiting sequences."""
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences, tenant by tenant."""
        return chain.from_iterable(self._waiting.values())

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        line = self._waiting.get(seq.tenant)
        if line is None:
            floor = min((self._served[t] for t in self._waiting), default=self._last)
            self._served[seq.tenant] = max(self._served.get(seq.tenant, 0.0), floor)
            line = self._waiting[seq.tenant] = deque()
        _insert(line, seq)

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        if not self._waiting:
            return None
        return self._waiting[self._poorest()][0]

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        tenant = self._poorest()
        seq = self._waiting[tenant].popleft()
        self._close_if_empty(tenant)
        self._served[tenant] += PROMPT_WEIGHT * (seq.prompt_tokens - seq.cached_tokens)
        return seq

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        for tenant, line in self._waiting.items():
            if seq := _removed(line, request_id):
                self._close_if_empty(tenant)
                return seq
        return None

    def served(self, seq: Sequence) -> None:
        """Count the output for the tenant."""
        self._served[seq.tenant] += OUTPUT_WEIGHT * seq.generated_tokens

    def _poorest(self) -> str | None:
        return min(
            self._waiting, key=lambda t: (self._served[t], self._waiting[t][0].arrival_number)
        )

    def _close_if_empty(self, tenant: str | None) -> None:
        if not self._waiting[tenant]:
            del self._waiting[tenant]
            self._last = self._served[tenant]


_QUEUES: dict[str, Callable[[], WaitingQueue]] = {
    "fcfs": ArrivalOrder,
    "sjf": ShortestJobFirst,
    "priority": PriorityFirst,
    "edf": EarliestDeadlineFirst,
    "fair": FairShare,
}


def queue_in_order(memory: KVMemory, config: PolicyConfig) -> WaitingQueue:
    """Return an empty waiting queue in ``config.queue_order``."""
    if config.queue_order == "longest-prefix":
        return LongestPrefixFirst(memory)
    return _QUEUES[config.queue_order]()


def has_stable_head(queue: WaitingQueue) -> bool:
    """Return whether the head is sure to stay until a sequence is added or removed."""
    return isinstance(queue, RankedQueue) or type(queue) in (ArrivalOrder, FairShare)


@mypyc_attr(allow_interpreted_subclasses=True)
class AdmissionQueue:
    """Admits sequences to a waiting queue, refuses some, and gives up others while they wait."""

    def __init__(self, memory: KVMemory, config: PolicyConfig, waiting: WaitingQueue) -> None:
        self.memory = memory
        self._waiting = waiting
        self._max_model_len = config.max_model_len
        self._queue_limit = config.queue_limit
        self._shed_ttft_s = config.shed_ttft_s
        longest = Sequence("", 0.0, config.max_model_len, 1)
        self._holds_any = memory.refusal(longest) is None
        """Whether every length that the model allows fits the memory."""
        self._last_arrival_number = 0
        self.dropped: list[tuple[Sequence, Refusal]] = []
        """Sequences given up since the list was last emptied."""

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or return why it is refused."""
        total = seq.prompt_tokens + seq.max_tokens
        if total > self._max_model_len:
            reason = f"{total} tokens are more than the model length of {self._max_model_len}"
            return Refusal("too_long", reason)
        if not self._holds_any and (reason_ := self.memory.refusal(seq)):
            return Refusal("too_long", reason_)
        self._last_arrival_number = seq.arrival_number = self._last_arrival_number + 1
        self._waiting.push(seq)
        return None

    def next_arrival_number(self) -> int:
        """Return the number of one more arrival."""
        self._last_arrival_number += 1
        return self._last_arrival_number

    def is_late(self, seq: Sequence, now_s: float) -> bool:
        """Return whether a sequence waited longer than the TTFT limit, and give it up if so.

        Judged when it could be admitted, and not before, so that a run of steps hides no decision.
        """
        limit_s = self._shed_ttft_s
        if limit_s is None or _has_run(seq) or now_s - seq.arrival_s <= limit_s:
            return False
        reason = f"waited longer than its TTFT limit of {limit_s:g} s"
        self.dropped.append((seq, Refusal("too_late", reason)))
        return True

    def is_full(self) -> bool:
        """Return whether one more arrival would be given up at the next step."""
        return self._queue_limit is not None and self._waiting.size >= self._queue_limit

    def over_limit(self) -> bool:
        """Return whether a sequence will be given up at the next step."""
        return self._queue_limit is not None and self._waiting.size > self._queue_limit

    def enforce_limit(self) -> bool:
        """Give up the newest sequences that wait beyond the limit; called after admission.

        Returns whether another sequence may be next in line now.
        """
        limit = self._queue_limit
        if limit is None or self._waiting.size <= limit:
            return False
        newest = sorted(filterfalse(_has_run, self._waiting), key=attrgetter("arrival_number"))
        for seq in newest[limit - self._waiting.size :]:
            self._waiting.remove(seq.request_id)
            reason = f"{limit} requests are waiting already"
            self.dropped.append((seq, Refusal("queue_full", reason)))
        return self._waiting.size > 0


def _has_run(seq: Sequence) -> bool:
    """Return whether the request was served in part: such a one is not turned away."""
    return seq.preemptions > 0 or seq.group is not None or seq.computed_tokens > 0


def _insert(line: "list[Sequence] | deque[Sequence]", seq: Sequence) -> None:
    """Insert into a line that is ordered by arrival number.

    The search goes on from both ends: new arrivals belong to the tail, preempted ones to the head.
    """
    number, front, back = seq.arrival_number, 0, len(line)
    while front < back and line[back - 1].arrival_number > number:
        if line[front].arrival_number > number:
            back = front
        else:
            front, back = front + 1, back - 1
    line.insert(max(front, back), seq)


def _removed(line: "list[Sequence] | deque[Sequence]", request_id: str) -> Sequence | None:
    for seq in line:
        if seq.request_id == request_id:
            line.remove(seq)
            return seq
    return None
