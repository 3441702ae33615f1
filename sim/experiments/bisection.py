"""The rate above which a condition fails: an ascent over given rates, then bisection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

_HALVINGS = 16
"""At a rate so far below the lowest rung, requests hardly overlap."""


@dataclass(frozen=True, slots=True)
class RateBracket:
    """The condition holds at ``holds_per_s`` and fails at ``fails_per_s``.

    ``holds_per_s`` is 0 if it holds nowhere, ``fails_per_s`` is None if it fails nowhere.
    """

    holds_per_s: float
    fails_per_s: float | None


def bisect_rate(
    holds: Callable[[float], bool], rungs: Sequence[float], precision: float
) -> RateBracket:
    """Return the lowest bracket: the condition holds at every rung below it.

    ``rungs`` ascend; the last one is the ceiling. The rates of the bracket differ by a factor of at
    most 1 + ``precision``. Rates higher up at which the condition holds again are ignored.
    """
    below, above = _bracket(holds, rungs)
    if below == 0 or above is None:
        return RateBracket(below, above)
    while above > below * (1 + precision):
        middle = sqrt(below * above)
        below, above = (middle, above) if holds(middle) else (below, middle)
    return RateBracket(below, above)


def _bracket(holds: Callable[[float], bool], rungs: Sequence[float]) -> tuple[float, float | None]:
    below = 0.0
    for rung in rungs:
        if not holds(rung):
            return (below, rung) if below else _descend(holds, rung)
        below = rung
    return below, None


def _descend(holds: Callable[[float], bool], above: float) -> tuple[float, float]:
    for _ in range(_HALVINGS):
        if holds(above / 2):
            return above / 2, above
        above /= 2
    return 0.0, above
