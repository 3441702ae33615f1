"""The order of a waiting queue, refusals, and the limit on the queue."""

from collections.abc import Callable, Iterator

from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import DiscardingQueue, KVMemory, Refusal
from servetwin.policies.protocols import WaitingQueue as WaitingQueue
from servetwin.policies.schedulers.longest_prefix import LongestPrefixFirst
from servetwin.policies.schedulers.waiting_queue import ArrivalOrder as ArrivalOrder
from servetwin.policies.schedulers.waiting_queue import (
    EarliestDeadlineFirst,
    FairShare,
    PriorityFirst,
    ShortestJobFirst,
)
from servetwin.policies.schedulers.waiting_queue import RankedQueue as RankedQueue
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr


class BoundedQueue:
    """The waiting queue ``order``, and which of its sequences have not run yet, the newest last."""

    def __init__(self, order: WaitingQueue) -> None:
        self.order = order
        self._discarding = order if isinstance(order, DiscardingQueue) else None
        self._newcomers: dict[Sequence, None] = {}

    @property
    def size(self) -> int:
        """The number of waiting sequences."""
        return self.order.size

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences, in no order."""
        return iter(self.order)

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        self.order.push(seq)
        if not has_run(seq):
            self._newcomers[seq] = None

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        return self.order.head()

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        seq = self.order.pop()
        self._newcomers.pop(seq, None)
        return seq

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        seq = self.order.remove(request_id)
        if seq is not None:
            self._newcomers.pop(seq, None)
        return seq

    def pop_newest(self) -> Sequence | None:
        """Remove and return the newest sequence that has not run; None where all have."""
        if not self._newcomers:
            return None
        seq, _ = self._newcomers.popitem()
        if self._discarding is not None:
            self._discarding.discard(seq)
        else:
            self.order.remove(seq.request_id)
        return seq

    def served(self, seq: Sequence) -> None:
        """Tell the order that a popped sequence has ended."""
        self.order.served(seq)


def has_run(seq: Sequence) -> bool:
    """Return whether the request was served in part: then it is not turned away."""
    return seq.preemptions > 0 or seq.group is not None or seq.computed_tokens > 0


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
    order = order_of(queue)
    return isinstance(order, RankedQueue) or type(order) in (ArrivalOrder, FairShare)


def order_of(queue: WaitingQueue) -> WaitingQueue:
    """Return the order of a queue, with a limit or without."""
    return queue.order if isinstance(queue, BoundedQueue) else queue


@mypyc_attr(allow_interpreted_subclasses=True)
class AdmissionQueue:
    """Admits sequences to a waiting queue, refuses some, and gives up others while they wait."""

    def __init__(self, memory: KVMemory, config: PolicyConfig, waiting: WaitingQueue) -> None:
        self.memory = memory
        self._limited = None if config.queue_limit is None else BoundedQueue(waiting)
        self._waiting = self._limited or waiting
        self._max_model_len = config.max_model_len
        self._queue_limit = config.queue_limit
        self._shed_ttft_s = config.shed_ttft_s
        longest = Sequence("", 0.0, max(1, config.max_model_len - 1), 2)  # which decodes
        self._holds_any = memory.refusal(longest) is None
        """Whether every length that the model allows fits the memory."""
        self._last_arrival_number = 0
        self.dropped: list[tuple[Sequence, Refusal]] = []
        """Sequences given up since the list was last emptied."""

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or return why it is refused; its samples are numbered after it."""
        total = seq.prompt_tokens + seq.max_tokens
        if total > self._max_model_len:
            reason = f"{total} tokens are more than the model length of {self._max_model_len}"
            return Refusal("too_long", reason)
        if not self._holds_any and (reason_ := self.memory.refusal(seq)):
            return Refusal("too_long", reason_)
        seq.arrival_number = self._last_arrival_number + 1
        self._last_arrival_number += seq.samples
        self._waiting.push(seq)
        return None

    def is_late(self, seq: Sequence, now_s: float) -> bool:
        """Return whether a sequence waited longer than the TTFT limit, and give it up if so.

        Judged when it could be admitted, and not before, so that a run of steps hides no decision.
        """
        limit_s = self._shed_ttft_s
        if limit_s is None or has_run(seq) or now_s - seq.arrival_s <= limit_s:
            return False
        reason = f"waited longer than its TTFT limit of {limit_s:g} s"
        self.dropped.append((seq, Refusal("too_late", reason)))
        return True

    def over_limit(self) -> bool:
        """Return whether a sequence will be given up at the next step."""
        return self._queue_limit is not None and self._waiting.size > self._queue_limit

    def enforce_limit(self) -> bool:
        """Give up the newest sequences that wait beyond the limit; called after admission.

        Returns whether another sequence may be next in line now.
        """
        queue, limit = self._limited, self._queue_limit
        if queue is None or limit is None or queue.size <= limit:
            return False
        given_up = []
        while queue.size > limit and (seq := queue.pop_newest()):
            given_up.append((seq, Refusal("queue_full", f"{limit} requests are waiting already")))
        self.dropped += reversed(given_up)
        return queue.size > 0
