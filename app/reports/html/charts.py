"""Plotly charts inside a page that fetches nothing.

plotly.js is in the page once, gzipped (2 MB in base64 for 4.8 MB); the browser unpacks it
(``DecompressionStream``, in every browser since 2023). The page's Content-Security-Policy forbids
all requests, so that a mistake of ours could make none.
"""

import base64
import gzip
import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from functools import cache

from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from servetwin.app.figures import Figure, alt_text, note_of
from servetwin.app.reports.html.elements import element
from servetwin.app.reports.pictures.themes import THEMES
from servetwin.app.words import asset

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)


class Charts:
    """The charts of one page: ``place`` each where it belongs, then add ``scripts`` at the end."""

    def __init__(self) -> None:
        self._figures: dict[str, Figure] = {}

    def place(self, title: str, figure: Figure, *, printed: bool = True) -> ET.Element:
        """Return the place where a chart will be drawn, with its title and its alternative text.

        One that is not ``printed`` is for the screen alone.
        """
        name = f"chart-{len(self._figures) + 1}"
        self._figures[name] = figure
        drawing = element("div", id=name, role="img", aria_label=alt_text(figure))
        note, only = note_of(figure), {} if printed else {"class_": "screen"}
        parts = [element("figcaption", title), drawing, *([element("p", note)] if note else [])]
        return element("figure", *parts, **only)

    def scripts(self) -> list[ET.Element]:
        """Return the library, the figures, and the script that draws them."""
        return [
            element("script", packed_library(), id="library", type="application/gzip"),
            element("script", _as_json(self._figures), id="charts", type="application/json"),
            element("script", asset("recoloured.js") + asset("report.js")),
        ]


@cache
def packed_library() -> str:
    """Return plotly.js, gzipped, in base64; the same bytes each time."""
    packed = gzip.compress(get_plotlyjs().encode(), compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode("ascii")


def _as_json(figures: Mapping[str, Figure]) -> str:
    """Return figures and themes as JSON that cannot close a script element."""
    themes = json.dumps({name: theme.spec() for name, theme in THEMES.items()})
    drawn = ",".join(f"{json.dumps(name)}:{fig.to_json()}" for name, fig in figures.items())
    return f'{{"themes":{themes},"charts":{{{drawn}}}}}'.replace("<", "\\u003c")
