"""Whole numbers by the first position of a chunk, each computed when it is first wanted."""

from collections.abc import Callable

import numpy as np

from servetwin.sim.step_times.roofline.operators import IntArray

_HERE = np.zeros(1, np.int64)


class ByStart:
    """A function of first positions, not below 0, that remembers its values."""

    def __init__(self, function: Callable[[int], int]) -> None:
        self._function = function
        self._known: IntArray = np.full(1024, -1, np.int64)

    def __call__(self, base: int, way: IntArray) -> IntArray:
        """Return the values at ``base`` + ``way``, of which the last is the largest."""
        if not len(way):
            return way
        if base + way[-1] >= len(self._known):
            more = np.full(base + int(way[-1]) + 1, -1, np.int64)
            self._known = np.concatenate((self._known, more))
        known = self._known[base:]
        found: IntArray = known[way]
        if found[found.argmin()] < 0:
            for tokens in set(way[found < 0].tolist()):
                known[tokens] = self._function(base + tokens)
            found = known[way]
        return found

    def at(self, start: int) -> int:
        """Return the value at one of them."""
        return int(self(start, _HERE)[0])
