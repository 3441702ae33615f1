"""Loads of many replicas, of which the least is found without looking at each."""

from collections.abc import Iterable
from math import isqrt

_NARROWEST = 64


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
        found = part + 1 + later.index(least) if least in later else parts.index(least)
        return loads.index(least, found * width)
