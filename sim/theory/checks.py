"""Where a closed form applies, and what to say where it does not."""

from collections.abc import Callable
from math import isfinite

from servetwin.workloads.errors import ServetwinError


class TheoryError(ServetwinError):
    """A closed form was asked about a system that it does not describe."""


def check_positive(**values: float) -> None:
    """Raise TheoryError unless every value is finite and above 0."""
    _check(values, lambda value: isfinite(value) and value > 0, "a positive number")


def check_not_negative(**values: float) -> None:
    """Raise TheoryError unless every value is finite and at least 0."""
    _check(values, lambda value: isfinite(value) and value >= 0, "0 or a positive number")


def check_whole(**values: float) -> None:
    """Raise TheoryError unless every value is a whole number of at least 1."""
    _check(values, lambda v: v >= 1 and float(v).is_integer(), "a whole number of at least 1")


def check_probability(**values: float) -> None:
    """Raise TheoryError unless every value lies in [0, 1)."""
    _check(values, lambda value: 0 <= value < 1, "at least 0 and below 1")


def _check(values: dict[str, float], holds: Callable[[float], bool], right: str) -> None:
    for name, value in values.items():
        if not holds(value):
            raise TheoryError(f"{name} must be {right}, not {value:g}")


def stable(utilisation: float) -> float:
    """Return the utilisation; raise TheoryError from 1 on, where the queue grows without bound."""
    if not utilisation < 1:
        raise TheoryError(
            f"a utilisation of {utilisation:g} has no steady state; lower the arrival rate or the "
            "service time until it is below 1"
        )
    return utilisation
