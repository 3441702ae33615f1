"""The whole number at which a condition turns true: steps that double, then halving."""

from collections.abc import Callable
from dataclasses import dataclass


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
    """Return where ``is_true`` turns true between ``least`` and ``greatest``, looked for from
    ``guess`` on.

    The numbers are neighbours, or differ by at most ``precision``, a share of the lower one.
    """
    below, above = _bracket(is_true, least, greatest, least if guess is None else guess)
    if below is None or above is None:
        return TurningPoint(below, above)
    while above - below > max(1, precision * below):
        middle = (below + above) // 2
        below, above = (below, middle) if is_true(middle) else (middle, above)
    return TurningPoint(below, above)


def _bracket(
    is_true: Callable[[int], bool], least: int, greatest: int, guess: int
) -> tuple[int | None, int | None]:
    at, step = min(max(guess, least), greatest), 1
    below, above = (None, at) if is_true(at) else (at, None)
    while above is None and below is not None and below < greatest:
        at = min(below + step, greatest)
        below, above = (below, at) if is_true(at) else (at, None)
        step *= 2
    while below is None and above is not None and above > least:
        at = max(above - step, least)
        below, above = (None, at) if is_true(at) else (at, above)
        step *= 2
    return below, above
