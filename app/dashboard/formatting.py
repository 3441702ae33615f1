"""Format text that users gave (bounded, without Markdown) and numbers."""

from math import floor, log10
from typing import Any

from servetwin.app.words import asset_table

_MOST, _MOST_OF_ERROR = 80, 1000
_MARKUP = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_{}[]()#+!|<>$~:"})


def plain(text: object) -> str:
    """Return letters, digits and harmless signs; others become ``?``."""
    return "".join(c if c.isalnum() or c in " .,:=+-_'" else "?" for c in str(text)[:_MOST])


def escaped(problem: object, most: int = _MOST_OF_ERROR) -> str:
    """Return an error that may quote a file, with its Markdown escaped."""
    return str(problem)[:most].translate(_MARKUP)


def page_text(name: str, /, **values: Any) -> str:
    """Return a text of ``pages.yaml``, filled in."""
    return str(asset_table("pages.yaml")[name]).format(**values)


def signed(value: float, beside: float) -> str:
    """Return a difference with its sign, to the third digit of the larger of the two."""
    largest = max(abs(value), abs(beside))
    places = max(0, 2 - floor(log10(largest))) if largest else 0
    return f"{round(value, places) + 0.0:+,.{places}f}"
