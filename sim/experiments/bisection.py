"""Where a condition that holds at low rates stops to hold: an ascent, then bisection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

_HALVINGS = 16
"""So far below the lowest rung hardly any two requests meet."""


@dataclass(frozen=True, slots=True)
class RateBracket:
    """The condition held at ``holds_per_s`` and failed at ``fails_per_s``.

    ``holds_per_s`` is 0 where it held nowhere, ``fails_per_s`` None where it failed nowhere.
    """

    holds_per_s: float
    fails_per_s: float | None


def bisect_rate(
    holds: Callable[[float], bool], rungs: Sequence[float], precision: float
) -> RateBracket:
    """The first crossing from below: every rung under it holds.

    ``rungs`` ascend, the last one is the ceiling. The two rates of the answer differ by the factor
    1 + ``precision`` at most. A condition that holds again higher up does not count there.
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
