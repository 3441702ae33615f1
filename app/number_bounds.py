"""Bounds of the numbers on the command line: finite, not negative, and of a size that can be meant.

An option that has ``min`` or ``max`` of its own keeps it.
"""

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any

import typer

from servetwin.workloads.errors import ServetwinError

MOST_COUNT = 2**31 - 1
MOST_NUMBER = 1e12
"""Seconds, tokens per second and scales end far below."""


class NumberError(ServetwinError):
    """A number on the command line is not possible."""


def bounded(declared: Any) -> Callable[[typer.CallbackParam, Any], Any]:
    """Return the callback of an option of numbers, which raises ``NumberError``.

    ``declared`` is its ``typer.Option``.
    """

    def check(param: typer.CallbackParam, value: Any) -> Any:
        name = param.opts[0]
        for number in _numbers(value):
            if wrong := _problem(number, declared):
                raise NumberError(f"{name}: {str(number)[:20]} is impossible; give {wrong}")
        return value

    return check


def _problem(number: float, declared: Any) -> str | None:
    """Return what is right where a number cannot be meant; the bounds that are declared hold."""
    most = MOST_COUNT if isinstance(number, int) else MOST_NUMBER
    if isinstance(number, float) and not isfinite(number):
        return "a finite number"
    if declared.min is None and number < 0:
        return "at least 0"
    if declared.max is None and number > most:
        return f"at most {most:,.0f}"
    return None


def as_number(text: str) -> float:
    """Return the number in a part of an option; raises ``ValueError`` where none can be meant."""
    number = float(text)
    if not abs(number) <= MOST_NUMBER:
        raise ValueError(text)
    return number


def _numbers(value: Any) -> Iterator[float]:
    """Yield the numbers of an option: none, one, or several where it may be repeated."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float):
        yield value
