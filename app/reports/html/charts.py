"""Plotly charts inside a page that fetches nothing.

plotly.js is in the page once, gzipped (2 MB in base64 for 4.8 MB); the browser unpacks it
(``DecompressionStream``, in every browser since 2023).
"""

import base64
import gzip
import json
from dataclasses import dataclass
from functools import cache

from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from servetwin.app.figures.canvas import Figure
from servetwin.app.figures.pictures import THEMES


@dataclass(frozen=True, slots=True)
class Chart:
    """The place of a chart; one that is not ``printed`` is for the screen alone."""

    id: str
    title: str
    alt: str
    note: str
    printed: bool


class Charts:
    """The charts of one page: ``place`` each where it belongs; ``as_json`` is what draws them."""

    def __init__(self) -> None:
        self._figures: dict[str, Figure] = {}

    def place(self, title: str, figure: Figure, *, printed: bool = True) -> Chart:
        """Return the place where a chart will be drawn, with its title and alternative text."""
        name = f"chart-{len(self._figures) + 1}"
        self._figures[name] = figure
        return Chart(name, title, figure.alt, figure.note, printed)

    def as_json(self) -> str:
        """Return figures and themes as JSON that cannot close a script element."""
        themes = json.dumps({name: theme.spec() for name, theme in THEMES.items()})
        charts = (f"{json.dumps(name)}:{of.to_json()}" for name, of in self._figures.items())
        return f'{{"themes":{themes},"charts":{{{",".join(charts)}}}}}'.replace("<", "\\u003c")


@cache
def packed_library() -> str:
    """Return plotly.js, gzipped, in base64; the same bytes each time."""
    packed = gzip.compress(get_plotlyjs().encode(), compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode("ascii")
