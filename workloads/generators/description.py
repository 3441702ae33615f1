"""What a generator draws, in plain English: each distribution declares its own."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Described(Protocol):
    """A distribution, process or structure that says what it draws."""

    def describe(self) -> str:
        """Return what it draws, as a phrase without a capital or a full stop."""


def describe(drawn: object) -> str:
    """Return what ``drawn`` says of itself; of a class that says nothing, its name."""
    return drawn.describe() if isinstance(drawn, Described) else f"by {type(drawn).__name__}"


def several(count: float, noun: str) -> str:
    """Return ``1 token`` or ``1,024 tokens``, to four digits where it is no whole number."""
    number = f"{count:,.0f}" if count >= 1000 or count == int(count) else f"{count:.4g}"
    return f"{number} {noun}{'' if number == '1' else 's'}"


def capped(least: int, most: int | None) -> str:
    """Return the caps of a distribution as the end of a phrase; empty without any."""
    if most is None:
        return f", at least {least:,}" if least > 1 else ""
    return f", at most {most:,}" if least == 1 else f", {least:,} to {most:,}"
