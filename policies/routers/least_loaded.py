"""The least loaded replica, by loads that are kept in an array from request to request."""

from collections.abc import Callable
from collections.abc import Sequence as Listed
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from servetwin.policies.routers.replica_loads import ReplicaLoads

# ``ReplicaLoads.requests`` or ``ReplicaLoads.tokens``.
ReadLoads = Callable[[float], Listed[int]]
LoadArray: TypeAlias = npt.NDArray[np.int64]
# When no report of loads is due.
_BEFORE_ALL_S = float("-inf")


class ReportedLoads:
    """The loads of all places, as last reported: only those that have changed are looked at."""

    def __init__(self, loads: ReplicaLoads, read: ReadLoads) -> None:
        self._read = read
        self._changed = loads.changed_places()
        self._known: LoadArray = np.array(read(_BEFORE_ALL_S), np.int64)

    def at(self, now_s: float) -> LoadArray:
        """Return the load of each place."""
        loads, known = self._read(now_s), self._known
        for place in self._changed:
            known[place] = loads[place]
        self._changed.clear()
        return known


class LeastLoaded:
    """The least load for the speed, the new request included; equal replicas take turns."""

    def __init__(self, loads: ReplicaLoads, read: ReadLoads) -> None:
        self._loads = ReportedLoads(loads, read)
        self._speeds: npt.NDArray[np.float64] = np.array(loads.speeds, np.float64)
        self._are_equal = len(set(loads.speeds)) == 1
        self._next = 0

    def range(self, now_s: float) -> tuple[int, int]:
        """Return the lowest and the highest load, as last reported."""
        loads = self._loads.at(now_s)
        return int(loads.min()), int(loads.max())

    def choose(self, now_s: float, own: int) -> int:
        """Return the place whose load plus ``own``, divided by its speed, is least."""
        loads, turn = self._loads.at(now_s), self._next
        costs = loads if self._are_equal else (loads + own) / self._speeds
        place = turn + int(costs[turn:].argmin())
        if turn:
            before = int(costs[:turn].argmin())
            if costs[before] < costs[place]:
                place = before
        self._next = (place + 1) % len(costs)
        return place
