"""The interface between a scheduler and its waiting queue."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from servetwin.policies.sequence import Sequence


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


@runtime_checkable
class DiscardingQueue(WaitingQueue, Protocol):
    """A waiting queue that can remove a sequence without a search, the newest at least."""

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""
