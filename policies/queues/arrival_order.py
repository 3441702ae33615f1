"""First come, first served: the plainest order of a waiting queue."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from operator import attrgetter

from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

arrival_number = attrgetter("arrival_number")


@mypyc_attr(allow_interpreted_subclasses=True)
class ArrivalOrder:
    """First come, first served."""

    def __init__(self) -> None:
        self.size = 0
        self._arrived: deque[Sequence] = deque()  # by arrival number

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences."""
        return iter(self._arrived)

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        self.size += 1
        arrived, number = self._arrived, seq.arrival_number
        if not arrived or arrived[-1].arrival_number < number:
            arrived.append(seq)
        elif number < arrived[0].arrival_number:
            arrived.appendleft(seq)
        else:
            arrived.insert(bisect_left(arrived, number, key=arrival_number), seq)

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        return self._arrived[0] if self._arrived else None

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        self.size -= 1
        return self._arrived.popleft()

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""
        self.size -= 1
        del self._arrived[bisect_left(self._arrived, seq.arrival_number, key=arrival_number)]

    def served(self, seq: Sequence) -> None:
        """Do nothing: this order counts no service."""
