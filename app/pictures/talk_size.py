"""The layout of a picture for a talk: 16:9, large fonts, title, source and link above the chart."""

from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go  # type: ignore[import-untyped]

from app.figures import Figure, note_of, title_of
from app.figures.canvas import escape_markup
from app.pictures.themes import THEMES, recoloured

HEIGHT_PX = 540
"""Of the canvas of most charts. An SVG has any size; a PNG is ``PNG_WIDTH_PX`` wide."""
PNG_WIDTH_PX = 1920
_ASPECT = 16 / 9
_HEAD_PX = 120
"""What title, source and legend take above a chart of many panels, which keeps its height."""
_FONT_PX, _TITLE_PX, _SOURCE_PX = 17, 26, 13
_PANEL_LEGEND_PX = 40
_LINE = 1.3
_EDGE_PX, _GAP_PX = 20, 8
_LETTER = 0.52
"""Mean width of a letter, in heights of its font."""


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
    made = go.Figure(recoloured(figure.to_plotly_json(), on_page.colours))
    return made.update_layout({**talk_layout(figure, caption), "template": on_page.template})


def talk_layout(figure: Figure, caption: Caption) -> dict[str, Any]:
    """Return what a picture changes in the layout of its figure, but for the theme."""
    height_px = max(HEIGHT_PX, (figure.layout.height or 0) + _HEAD_PX)
    width_px = round(height_px * _ASPECT)
    title = _lines(title_of(figure), width_px, _TITLE_PX)
    said = " ".join(filter(None, [caption.source, note_of(figure)]))
    source = [*_lines(said, width_px, _SOURCE_PX), *_link_lines(caption.link, width_px)]
    text_px = _EDGE_PX + _LINE * (_TITLE_PX * len(title) + _SOURCE_PX * len(source)) + _GAP_PX
    return {
        "width": width_px,
        "height": height_px,
        "autosize": False,
        "font": {"size": _FONT_PX, "family": "system-ui, sans-serif"},
        "title": {
            "text": f"<b>{'<br>'.join(title)}</b>",
            "font": {"size": _TITLE_PX},
            "subtitle": {"text": "<br>".join(source), "font": {"size": _SOURCE_PX}},
            "x": 0, "xref": "container", "xanchor": "left",
            "y": 1, "yref": "container", "yanchor": "top",
            "pad": {"l": _EDGE_PX, "t": _EDGE_PX},
        },
        "margin": {"l": 80, "r": 30, "t": round(text_px) + 2 * _GAP_PX, "b": 70},
        **_legends(figure, text_px, height_px),
        **_panel_titles(figure),
    }  # fmt: skip


def _legends(figure: Figure, text_px: float, height_px: int) -> dict[str, Any]:
    """Put the legend below the source; where each panel has one, they stay above their panels."""
    names = [name for name in figure.layout if name.startswith("legend")]
    if len(names) > 1:
        above_px = round(text_px) + max(_PANEL_LEGEND_PX, figure.layout.margin.t or 0)
        small = {name: {"font": {"size": _SOURCE_PX}} for name in names}
        return {**small, "margin": {"l": 80, "r": 30, "t": above_px, "b": 70}}
    top = {"y": 1 - text_px / height_px, "yref": "container", "yanchor": "top"}
    place = {"x": 0, "xref": "paper", **top, "orientation": "h"}
    return {"legend": {**place, "font": {"size": _FONT_PX}}}


def _panel_titles(figure: Figure) -> dict[str, Any]:
    """Return smaller titles for the axes of several panels, which have less room."""
    axes = [name for name in figure.layout if name.startswith("yaxis")]
    size = {"title": {"font": {"size": _SOURCE_PX}}}
    return dict.fromkeys(axes, size) if len(axes) > 1 else {}


def letters_in_line(width_px: int, font_px: int = _SOURCE_PX) -> int:
    """Return how many letters of a font go into a line of a picture."""
    return int((width_px - 2 * _EDGE_PX) / (font_px * _LETTER))


def _lines(text: str, width_px: int, font_px: int) -> list[str]:
    return [escape_markup(line) for line in wrap(text, letters_in_line(width_px, font_px))]


def _link_lines(link: str, width_px: int) -> list[str]:
    """Return one line; of a long link only the beginning is shown, and in an SVG all is linked."""
    if not link:
        return []
    fitting = letters_in_line(width_px)
    shown = escape_markup(link if len(link) <= fitting else f"{link[: fitting - 3]}...")
    if not link.startswith(("http://", "https://")):
        return [shown]
    return [f'<a href="{escape_markup(link).replace(chr(34), "%22")}">{shown}</a>']
