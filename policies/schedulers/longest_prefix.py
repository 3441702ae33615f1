"""Longest prefix first, among the first few waiting sequences."""

from bisect import insort
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter

from servetwin.policies.protocols import KVMemory
from servetwin.policies.schedulers.prefix_matches import matches_in
from servetwin.policies.schedulers.waiting_queue import ArrivalOrder, remove_request
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

SCANNED_HEADS = 128
"""Waiting sequences that longest prefix first compares, as SGLang does; the rest is FCFS."""

_arrival_number = attrgetter("arrival_number")


@mypyc_attr(allow_interpreted_subclasses=True)
class LongestPrefixFirst:
    """The sequence with most of its prompt in the cache now (SGLang, 2024), among the first few."""

    def __init__(self, memory: KVMemory) -> None:
        self._heads: list[Sequence] = []  # by arrival number
        self._matches = matches_in(memory)
        self._rest = ArrivalOrder()

    @property
    def size(self) -> int:
        """The number of waiting sequences."""
        return len(self._heads) + self._rest.size

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences."""
        return chain(self._heads, self._rest)

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""
        heads = self._heads
        if len(heads) == SCANNED_HEADS and seq.arrival_number > heads[-1].arrival_number:
            self._rest.push(seq)
            return
        insort(heads, seq, key=_arrival_number)
        self._matches.enter(seq)
        if len(heads) > SCANNED_HEADS:
            last = heads.pop()
            self._matches.leave(last)
            self._rest.push(last)

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""
        return self._matches.longest()

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""
        head = self.head()
        assert head is not None
        self.discard(head)
        return head

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a sequence; None when it does not wait."""
        return remove_request(self, request_id)

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""
        if seq not in self._heads:
            self._rest.discard(seq)
            return
        self._heads.remove(seq)
        self._matches.leave(seq)
        if self._rest.size:
            following = self._rest.pop()
            self._heads.append(following)
            self._matches.enter(following)

    def served(self, seq: Sequence) -> None:
        """Do nothing: this order counts no service."""
