"""The rate at which a figure crosses 0, near a guess: in two or three steps of the secant."""

from collections.abc import Callable
from math import exp, inf, log

_CLOSE, _AS_CLOSE = 0.04, 0.1
"""Steps, in the logarithm of the rate, that are not worth another look: the latter along a line
through two looks that are no further than ``_NEIGHBOURS`` apart."""
_UNSURE = 0.015
"""The same along a line that is flatter than it may be."""
_NEIGHBOURS = 0.25
_MOST_LOOKS = 8
_MOST_EXCESS = 1.0
_FLATTEST = 3.0
"""A line through two looks is at most so many times flatter than the one that was expected."""


def crossing_rate(
    excess: Callable[[float], float], guess_per_s: float, slope: float, most_per_s: float
) -> float:
    """Return about the rate at which ``excess`` turns positive, at most ``most_per_s``.

    ``slope`` is how much it is expected to grow with the logarithm of the rate. Where it jumps, the
    rate is found by halving.
    """
    low, high = -inf, log(most_per_s)
    at, before = min(log(guess_per_s), high), None
    steep = slope
    for _ in range(_MOST_LOOKS):
        found = min(max(excess(exp(at)), -_MOST_EXCESS), _MOST_EXCESS)
        low, high = (max(low, at), high) if found <= 0 else (low, min(high, at))
        close = 0.0  # What is expected of the slope alone says nothing about the error.
        if before is not None and before[0] != at:
            line, flattest = (found - before[1]) / (at - before[0]), slope / _FLATTEST
            steep = max(line, flattest)
            close = _AS_CLOSE if abs(at - before[0]) < _NEIGHBOURS else _CLOSE
            if line < flattest:
                close = _UNSURE
        before, target = (at, found), at - found / steep
        if not low <= target <= high:
            target = high if target > high and found <= 0 else (low + high) / 2
        if target == at or abs(target - at) < close:
            return exp(target)
        at = target
    return exp(at)
