"""Light and dark pictures: the template, and each colour of a chart as it is drawn on that page.

A chart on a page has colours between both, 3:1 from either. On its own page each becomes darker or
lighter, until it is 4.5:1 from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servetwin.app.figures import DARK, LIGHT, Figure
from servetwin.app.words import asset_table

_COLOURS = asset_table("looks.yaml")["on_pages"]


@dataclass(frozen=True, slots=True)
class Theme:
    """A page to draw on: its template, and what becomes of the colours of a chart."""

    template: Figure
    colours: Mapping[str, str]

    def spec(self) -> dict[str, Any]:
        """Return the theme as ``pictures.js`` and ``report.js`` take it."""
        return {"template": self.template.to_plotly_json(), "colours": self.colours}


THEMES = {"light": Theme(LIGHT, _COLOURS["light"]), "dark": Theme(DARK, _COLOURS["dark"])}


def recoloured(part: Any, colours: Mapping[str, str]) -> Any:
    """Return a part of a figure's JSON with its colours replaced; arrays of numbers stay."""
    if isinstance(part, dict):
        return {key: recoloured(value, colours) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [recoloured(value, colours) for value in part]
    return colours.get(part, part) if isinstance(part, str) else part
