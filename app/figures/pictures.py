"""The layout of a picture for a talk: 16:9, large fonts, title, source and link above the chart."""

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from servetwin.app.figures.canvas import (
    DARK,
    LIGHT,
    Figure,
    escape_markup,
    recoloured,
)
from servetwin.app.words import asset_table

# Of the canvas of most charts. An SVG has any size; a PNG is ``PNG_WIDTH_PX`` wide.
HEIGHT_PX = 540
PNG_WIDTH_PX = 1920
_ASPECT = 16 / 9
# What title, source and legend take above a chart of many panels, which keeps its height.
_HEAD_PX = 120
# Fonts grow with the canvas, a little less: a chart of many panels has more to say.
_GROWTH = 0.7
# Of the chart, the title and the source.
_FONTS_PX = (17, 26, 13)
_PANEL_LEGEND_PX = 40
_EDGE_PX, _GAP_PX = 20, 8
_LINE = 1.3
# Mean width of a letter, in heights of its font.
_LETTER, _BOLD_LETTER = 0.54, 0.66
# By how much plotly sets a title of several lines higher, in heights of its font.
_RAISED = 0.7
_MOST_LOG_TICKS = 4


@dataclass(frozen=True, slots=True)
class Caption:
    """What a picture says of itself below its title: its source, and where to see it again.

    ``link`` is an address, or a command.
    """

    source: str
    link: str = ""


def picture(figure: Figure, caption: Caption, theme: str = "light") -> Figure:
    """Return a figure as a picture on the page of a theme; ``figure`` itself stays as it is."""
    on_page = THEMES[theme]
    made = Figure(recoloured(figure.to_plotly_json(), on_page.colours))
    made.update_layout({**talk_layout(figure, caption), "template": on_page.template})
    return made


def talk_layout(figure: Figure, caption: Caption) -> dict[str, Any]:
    """Return what a picture changes in the layout of its figure, but for the theme."""
    height_px = max(HEIGHT_PX, (figure.layout.height or 0) + _HEAD_PX)
    width_px, growth = round(height_px * _ASPECT), (height_px / HEIGHT_PX) ** _GROWTH
    font_px, title_px, source_px = (round(px * growth) for px in _FONTS_PX)
    title = _lines(figure.title, letters_in_line(width_px, title_px, _BOLD_LETTER))
    fitting = letters_in_line(width_px, source_px)
    text = " ".join(filter(None, [caption.source, figure.note]))
    source = [*_lines(text, fitting), *_link_lines(caption.link, fitting)]
    top_px = _EDGE_PX + (_RAISED * title_px if len(title) > 1 else 0)
    text_px = top_px + _LINE * (title_px * len(title) + source_px * len(source)) + _GAP_PX
    return {
        "width": width_px,
        "height": height_px,
        "autosize": False,
        "font": {"size": font_px, "family": "system-ui, sans-serif"},
        "title": {
            "text": f"<b>{'<br>'.join(title)}</b>",
            "font": {"size": title_px},
            "subtitle": {"text": "<br>".join(source), "font": {"size": source_px}},
            "x": 0, "xref": "container", "xanchor": "left",
            "y": 1, "yref": "container", "yanchor": "top",
            "pad": {"l": _EDGE_PX, "t": top_px},
        },
        **_legends(figure, text_px, height_px, font_px, source_px),
        **_axes(figure, source_px),
    }  # fmt: skip


def letters_in_line(width_px: int, font_px: int, letter: float = _LETTER) -> int:
    """Return how many letters of a font go into a line of a picture."""
    return int((width_px - 2 * _EDGE_PX) / (font_px * letter))


def _legends(
    figure: Figure, text_px: float, height_px: int, font_px: int, source_px: int
) -> dict[str, Any]:
    """Put the legend below the source; where each panel has one, they stay above their panels."""
    names = [name for name in figure.layout if name.startswith("legend")]
    margin = {"l": 80, "r": 30, "t": round(text_px) + 2 * _GAP_PX, "b": 4 * font_px}
    if len(names) > 1:
        above_px = max(_PANEL_LEGEND_PX, figure.layout.margin.t or 0)
        small = {name: {"font": {"size": source_px}} for name in names}
        return {**small, "margin": {**margin, "t": round(text_px) + above_px}}
    top = {"y": 1 - text_px / height_px, "yref": "container", "yanchor": "top"}
    place = {"x": 0, "xref": "paper", **top, "orientation": "h"}
    return {"legend": {**place, "font": {"size": font_px}}, "margin": margin}


def _axes(figure: Figure, source_px: int) -> dict[str, Any]:
    """Return fewer ticks for logarithmic axes, and smaller titles where panels share the height."""
    xs, ys = ([n for n in figure.layout if n.startswith(f"{axis}axis")] for axis in "xy")
    panel = {"font": {"size": source_px}} if len(ys) > 1 else {}
    titles = {**{name: {"standoff": _GAP_PX} for name in xs}, **dict.fromkeys(ys, panel)}
    logarithmic = {n for n in (*xs, *ys) if figure.layout[n].type == "log"}
    return {
        name: {"title": title, **({"nticks": _MOST_LOG_TICKS} if name in logarithmic else {})}
        for name, title in titles.items()
    }


def _lines(text: str, letters: int) -> list[str]:
    return [escape_markup(line) for line in wrap(text, letters)]


def _link_lines(link: str, letters: int) -> list[str]:
    """Return one line; of a long link only the beginning is shown, and in an SVG all is linked."""
    if not link:
        return []
    shown = escape_markup(link if len(link) <= letters else f"{link[: letters - 3]}...")
    if not link.startswith(("http://", "https://")):
        return [shown]
    return [f'<a href="{escape_markup(link).replace(chr(34), "%22")}">{shown}</a>']


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
