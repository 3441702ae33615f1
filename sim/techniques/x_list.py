"""Parameters that are lists: ``3x2x1`` on a command line, where a comma ends a parameter."""

from typing import Any


def split_x(given: Any) -> Any:
    """``3x2x1`` as its parts; what is no text stays as it is."""
    return given.split("x") if isinstance(given, str) else given
