"""Waiting queues, filled and emptied in one line."""

from servetwin.policies.config import PolicyConfig, QueueOrder
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.protocols import WaitingQueue
from servetwin.policies.queues.intake import queue_in_order
from servetwin.policies.sequence import Sequence

ORDERS: list[QueueOrder] = ["fcfs", "sjf", "priority", "edf", "longest-prefix", "fair"]


def queue_of(order: QueueOrder) -> WaitingQueue:
    config = PolicyConfig(queue_order=order)
    return queue_in_order(PagedKV(config), config)


def pushed(queue: WaitingQueue, *seqs: Sequence) -> WaitingQueue:
    """Push sequences, numbered in this order unless they have a number."""
    for number, seq in enumerate(seqs, 1):
        seq.arrival_number = seq.arrival_number or number
        queue.push(seq)
    return queue


def popped(queue: WaitingQueue) -> str:
    """Pop all, each equal to the head before it."""
    names = []
    while queue.size:
        head = queue.head()
        assert queue.pop() is head
        assert head is not None
        names.append(head.request_id)
    assert queue.head() is None
    return "".join(names)
