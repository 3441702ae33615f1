"""A waiting queue with a limit, which finds the newest of its sequences at once."""

from collections.abc import Iterator

from servetwin.policies.schedulers.queue_protocol import DiscardingQueue, WaitingQueue
from servetwin.policies.sequence import Sequence


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
