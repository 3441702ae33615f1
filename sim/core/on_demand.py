"""Replicas that run ahead on their own, each as far as it is looked at."""

from collections.abc import Sequence as Listed
from heapq import heapify, heappop, heappush, heapreplace

from servetwin.policies.protocols import Refusal
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.environment import NEVER
from servetwin.sim.core.replica import Replica

_MOST_NOTES = 4
"""Times of decisions per replica, most of them overtaken by new plans, after which none is kept."""


class OnDemand:
    """Simulates replicas from which nothing follows until a request or a router comes to them.

    What such a replica does between two requests of its own disturbs no other, and nothing disturbs
    it. So it needs no events: a request that comes to it, and a router that reads loads, first let
    it catch up. Where no router reads loads, replicas that get no request are left alone.
    """

    def __init__(self, replicas: Listed[Replica]) -> None:
        self.now = 0
        """The tick up to which nothing more comes."""
        self._replicas = replicas
        self._due: list[tuple[int, int]] = []
        """A heap of (tick of the next decision, place), once a router has read loads."""
        self._is_read = False
        for replica in replicas:
            replica.on_demand = True

    def catch_up(self) -> None:
        """Simulate all that happens on any replica before now."""
        due, replicas, tick = self._due, self._replicas, self.now
        if not self._is_read:
            self._is_read = True
            due += [(r.due, place) for place, r in enumerate(replicas) if r.due < NEVER]
            heapify(due)
        while due and due[0][0] < tick:
            at, place = due[0]
            replica = replicas[place]
            if replica.due == at:  # else the plan has changed, and the new one is in the heap too
                replica.catch_up(tick)
                if replica.due < NEVER:
                    heapreplace(due, (replica.due, place))
                    continue
            heappop(due)

    def settle(self, tick: int) -> None:
        """Simulate all that happens before ``tick``, though no router reads loads."""
        if self._is_read:
            self.now = tick
            self.catch_up()
            return
        for replica in self._replicas:
            replica.catch_up(tick)

    def submit(self, place: int, seq: Sequence, horizon: int) -> Refusal | None:
        """Submit a sequence to a replica now; before ``horizon`` nothing else comes."""
        replica = self._replicas[place]
        due = replica.due
        if due < self.now:
            replica.catch_up(self.now)
        refusal = replica.submit_at(seq, self.now)
        if self._is_read:
            replica.catch_up(horizon)  # soon needed, and its data are at hand now
            if replica.due != due and replica.due < NEVER:
                self._note(place)
        return refusal

    def _note(self, place: int) -> None:
        heappush(self._due, (self._replicas[place].due, place))
        if len(self._due) > _MOST_NOTES * len(self._replicas):  # no router reads loads any more
            self._due.clear()
            self._is_read = False

    def finish(self) -> None:
        """Simulate every replica to its end."""
        for replica in self._replicas:
            replica.catch_up(NEVER)
