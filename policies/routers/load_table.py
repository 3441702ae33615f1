"""Loads of many replicas, of which the least is found without looking at each."""

from collections.abc import Iterable
from collections.abc import Sequence as Listed
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
        width, parts = self._width, self._least_of_parts
        least = min(parts)
        part = start // width
        place = _find(self._loads, least, start, (part + 1) * width)
        if place >= 0:
            return place
        found = _find(parts, least, part + 1, len(parts))
        if found < 0:
            found = parts.index(least)
        return self._loads.index(least, found * width)


def _find(values: Listed[int], value: int, start: int, end: int) -> int:
    """Return the first index of ``value`` from ``start`` to ``end``; -1 where there is none."""
    try:
        return values.index(value, start, end)
    except ValueError:
        return -1
