"""One look per policy or run, on every page: a colour, and a dash and a symbol beside it.

The colours stand out from white and from a dark page alike (contrast 3:1 at least), and the first
six stay apart for people who do not see red or green. Dash and symbol serve people who see no
colour.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle

COLOURS = (
    "#0072B2", "#D55E00", "#779988", "#4444FF", "#AA4433",
    "#0088FF", "#007788", "#DD7755", "#AA4455", "#5599CC",
)  # fmt: skip
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star")
LIGHT_PAGE = "#ffffff"
DARK_PAGE = "#0e1117"
LIMIT_COLOUR = "#808080"
"""Limits and diagonals: visible on both pages, and no run's own."""
LIMIT_LINE = {"color": LIMIT_COLOUR, "dash": "dash"}


@dataclass(frozen=True, slots=True)
class Look:
    """How one policy or run is drawn."""

    colour: str
    dash: str
    symbol: str


Looks = Mapping[str, Look]
"""Looks by the name of a policy or run."""


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return a look per name, by its place; give every page the names in the same order."""
    kinds = zip(cycle(COLOURS), cycle(DASHES), cycle(SYMBOLS), strict=False)
    return {name: Look(*kind) for name, kind in zip(dict.fromkeys(names), kinds, strict=False)}
