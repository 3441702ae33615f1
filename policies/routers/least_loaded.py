"""The least loaded replica, found by what has changed since the last request."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Listed
from math import isqrt

from servetwin.policies.routers.replica_loads import ReplicaLoads

_NARROWEST = 64
_BEFORE_ALL_S = float("-inf")
"""When no report of loads is due."""


class LoadTable:
    """Loads by place, in parts of about the root of their number, each with its least load.

    A change looks at one part at most, a search at the least load of every part and into one part.
    """

    def __init__(self, loads: Iterable[int]) -> None:
        self._loads = list(loads)
        self._width = width = max(_NARROWEST, isqrt(len(self._loads)))
        begins = range(0, len(self._loads), width)
        self._least_of_parts = [min(self._loads[begin : begin + width]) for begin in begins]

    def change(self, place: int, load: int) -> None:
        """Set the load of a place."""
        before, self._loads[place] = self._loads[place], load
        part = place // self._width
        least = self._least_of_parts[part]
        if load < least:
            self._least_of_parts[part] = load
        elif before == least and load > least:
            begin = part * self._width
            self._least_of_parts[part] = min(self._loads[begin : begin + self._width])

    def least(self) -> int:
        """Return the least load."""
        return min(self._least_of_parts)

    def next_least(self, start: int) -> int:
        """Return the first place with the least load, from ``start`` on and around the end."""
        loads, parts, width = self._loads, self._least_of_parts, self._width
        least = min(parts)
        part = start // width
        if parts[part] == least:
            rest = loads[start : (part + 1) * width]
            if least in rest:
                return start + rest.index(least)
        later = parts[part + 1 :]
        nearest = part + 1 + later.index(least) if least in later else parts.index(least)
        return loads.index(least, nearest * width)


ReadLoads = Callable[[float], Listed[int]]
"""``ReplicaLoads.requests`` or ``ReplicaLoads.tokens``."""


class LeastLoaded:
    """The least load for the speed, the new request included; equal replicas take turns.

    Replicas of one speed are in one table, so that the cost of a choice grows with the number of
    speeds, and with the root of the number of replicas.
    """

    def __init__(self, loads: ReplicaLoads, read: ReadLoads) -> None:
        self._loads, self._read = loads, read
        self._count = len(loads)
        self._group_of: list[tuple[LoadTable, int]] = []
        """The table of each place, and the index there."""
        self._changed = loads.changed_places()
        self._groups = self._by_speed(read(_BEFORE_ALL_S))
        self._next = 0

    def choose(self, now_s: float, own: int) -> int:
        """Return the place whose load plus ``own``, divided by its speed, is least."""
        loads = self._read(now_s)
        for place in self._changed:
            table, index = self._group_of[place]
            table.change(index, loads[place])
        self._changed.clear()
        if len(self._groups) == 1:  # an index is a place
            place = self._groups[0].table.next_least(self._next)
        else:
            place = self._least_of_groups(own)
        self._next = (place + 1) % self._count
        return place

    def _least_of_groups(self, own: int) -> int:
        groups, turn = self._groups, self._next
        costs = [group.cost(own) for group in groups]
        least = min(costs)
        tied = [group for group, cost in zip(groups, costs, strict=True) if cost == least]
        places = [group.next_least(turn) for group in tied]
        return min(places, key=lambda place: (place - turn) % self._count)

    def _by_speed(self, loads: Listed[int]) -> "list[_SpeedGroup]":
        by_speed: dict[float, list[int]] = {}
        for place, speed in enumerate(self._loads.speeds):
            by_speed.setdefault(speed, []).append(place)
        groups = {speed: _SpeedGroup(speed, places, loads) for speed, places in by_speed.items()}
        numbers = dict.fromkeys(by_speed, 0)
        for speed in self._loads.speeds:
            self._group_of.append((groups[speed].table, numbers[speed]))
            numbers[speed] += 1
        return list(groups.values())


class _SpeedGroup:
    """The replicas of one speed, and their loads."""

    def __init__(self, speed: float, places: list[int], loads: Listed[int]) -> None:
        self._speed, self._places = speed, places
        self.table = LoadTable(loads[place] for place in places)

    def cost(self, own: int) -> float:
        """Return the least load plus ``own``, for the speed."""
        return (self.table.least() + own) / self._speed

    def next_least(self, turn: int) -> int:
        """Return the first place with the least load, from ``turn`` on and around the end."""
        places = self._places
        start = bisect_left(places, turn)
        return places[self.table.next_least(start if start < len(places) else 0)]


class LoadRange:
    """The lowest and the highest load."""

    def __init__(self, loads: ReplicaLoads, read: ReadLoads) -> None:
        self._read = read
        self._changed = loads.changed_places()
        begun = read(_BEFORE_ALL_S)
        self._low, self._high = LoadTable(begun), LoadTable(-load for load in begun)

    def at(self, now_s: float) -> tuple[int, int]:
        """Return the lowest and the highest load, as last reported."""
        loads = self._read(now_s)
        for place in self._changed:
            self._low.change(place, loads[place])
            self._high.change(place, -loads[place])
        self._changed.clear()
        return self._low.least(), -self._high.least()
