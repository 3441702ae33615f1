"""Searches for the place where a condition turns: rates by bisection or secant, whole numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

# At a rate so far below the lowest rung, requests hardly overlap.
_HALVINGS = 16
# Steps, in the logarithm of the rate, that are not worth another probe: the latter along a line
# through two probes that are no further than ``_NEIGHBOURS`` apart.
_CLOSE, _AS_CLOSE = 0.04, 0.1
# The same along a line that is flatter than expected.
_UNSURE = 0.015
_NEIGHBOURS = 0.25
_MOST_PROBES = 8
_MOST_EXCESS = 1.0
# A line through two probes is at most this many times flatter than expected.
_FLATTEST = 3.0


def bisect_rate(
    holds: Callable[[float], bool], rungs: Sequence[float], precision: float
) -> tuple[float, float | None]:
    """Return the rates of the lowest bracket: at the first the condition holds, as at every rung
    below it, at the second it fails. The first is 0 if it holds nowhere, the second None if it
    fails nowhere.

    ``rungs`` ascend; the last one is the ceiling. The rates of the bracket differ by a factor of at
    most 1 + ``precision``. Rates higher up at which the condition holds again are ignored.
    """
    below, above = _climb(holds, rungs)
    while below and above is not None and above > below * (1 + precision):
        middle = sqrt(below * above)
        below, above = (middle, above) if holds(middle) else (below, middle)
    return below, above


def _climb(holds: Callable[[float], bool], rungs: Sequence[float]) -> tuple[float, float | None]:
    below = 0.0
    for rung in rungs:
        if holds(rung):
            below = rung
        elif below:
            return below, rung
        else:
            return _descend(holds, rung)
    return below, None


def _descend(holds: Callable[[float], bool], above: float) -> tuple[float, float]:
    for _ in range(_HALVINGS):
        if holds(above / 2):
            return above / 2, above
        above /= 2
    return 0.0, above


def crossing_rate(
    excess: Callable[[float], float], guess_per_s: float, slope: float, most_per_s: float
) -> float:
    """Return about the rate at which ``excess`` turns positive, at most ``most_per_s``.

    ``slope`` is how much it is expected to grow with the logarithm of the rate. Two or three steps
    of the secant; where the excess jumps, the rate is found by halving.
    """
    low, high = -inf, log(most_per_s)
    at, before = min(log(guess_per_s), high), None
    steep = slope
    for _ in range(_MOST_PROBES):
        value = min(max(excess(exp(at)), -_MOST_EXCESS), _MOST_EXCESS)
        low, high = (max(low, at), high) if value <= 0 else (low, min(high, at))
        close = 0.0  # The expected slope alone says nothing about the error.
        if before is not None and before[0] != at:
            line, flattest = (value - before[1]) / (at - before[0]), slope / _FLATTEST
            steep = max(line, flattest)
            close = _AS_CLOSE if abs(at - before[0]) < _NEIGHBOURS else _CLOSE
            if line < flattest:
                close = _UNSURE
        before, target = (at, value), at - value / steep
        if not low <= target <= high:
            target = high if target > high and value <= 0 else (low + high) / 2
        if target == at or abs(target - at) < close:
            return exp(target)
        at = target
    return exp(at)


@dataclass(frozen=True, slots=True)
class TurningPoint:
    """The condition is false at ``below`` and true at ``above``.

    ``below`` is None if it is true at the least number, ``above`` None if it is false at the
    greatest.
    """

    below: int | None
    above: int | None


def turning_point(
    is_true: Callable[[int], bool],
    least: int,
    greatest: int,
    guess: int | None = None,
    precision: float = 0.0,
) -> TurningPoint:
    """Return where ``is_true`` turns true between ``least`` and ``greatest``, from ``guess`` on.

    Steps double until it turns, then halve. The numbers are neighbours, or differ by at most
    ``precision``, a share of the lower one.
    """
    at, step = min(max(least if guess is None else guess, least), greatest), 1
    below, above = (None, at) if is_true(at) else (at, None)
    while above is None and below is not None and below < greatest:
        at = min(below + step, greatest)
        below, above = (below, at) if is_true(at) else (at, None)
        step *= 2
    while below is None and above is not None and above > least:
        at = max(above - step, least)
        below, above = (None, at) if is_true(at) else (at, above)
        step *= 2
    while below is not None and above is not None and above - below > max(1, precision * below):
        middle = (below + above) // 2
        below, above = (below, middle) if is_true(middle) else (middle, above)
    return TurningPoint(below, above)
