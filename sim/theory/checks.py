"""Where a closed form applies, and what to say where it does not."""

from math import isfinite

from workloads.errors import ServetwinError


class TheoryError(ServetwinError):
    """A closed form was asked about a system that it does not describe."""


def check_positive(**values: float) -> None:
    """Raise TheoryError unless every value is finite and above 0."""
    for name, value in values.items():
        if not (isfinite(value) and value > 0):
            raise TheoryError(f"{name} must be a positive number, not {value:g}")


def check_not_negative(**values: float) -> None:
    """Raise TheoryError unless every value is finite and at least 0."""
    for name, value in values.items():
        if not (isfinite(value) and value >= 0):
            raise TheoryError(f"{name} must be 0 or a positive number, not {value:g}")


def check_whole(**values: float) -> None:
    """Raise TheoryError unless every value is a whole number of at least 1."""
    for name, value in values.items():
        if not (value >= 1 and float(value).is_integer()):
            raise TheoryError(f"{name} must be a whole number of at least 1, not {value:g}")


def check_probability(**values: float) -> None:
    """Raise TheoryError unless every value lies in [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise TheoryError(f"{name} must be at least 0 and below 1, not {value:g}")


def stable(utilisation: float) -> float:
    """Return the utilisation; raise TheoryError from 1 on, where the queue grows without bound."""
    if not utilisation < 1:
        raise TheoryError(
            f"a utilisation of {utilisation:g} has no steady state; lower the arrival rate or the "
            "service time until it is below 1"
        )
    return utilisation
