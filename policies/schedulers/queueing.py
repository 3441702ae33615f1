"""The orders of a waiting queue by name."""

from collections.abc import Callable

from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory
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
