"""The colours of pictures: 4.5:1 from their page, and apart for every kind of colour vision."""

import json
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

pytest.importorskip("plotly", reason="pictures need plotly")

from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from servetwin.app.figures.canvas import COLOURS, DARK_PAGE, LIGHT_PAGE, LIMIT_COLOUR, recoloured
from servetwin.app.figures.pictures import THEMES, Caption, picture
from servetwin.app.words import asset, asset_table
from tests.support.colour_vision import SIGHTS, contrast, least_distance
from tests.support.dashboard_app import Chromium
from tests.support.drawn_figures import DRAWN

PAGES = {"light": LIGHT_PAGE, "dark": DARK_PAGE}
LEAST_CONTRAST = 4.5


def runs(theme: str) -> list[str]:
    return [recoloured(colour, THEMES[theme].colours) for colour in COLOURS]


def all_colours() -> set[str]:
    """Every colour that a figure of ours can have."""
    looks = asset_table("looks.yaml")
    tables = json.dumps({name: table for name, table in looks.items() if name != "on_pages"})
    return {*COLOURS, LIMIT_COLOUR, *re.findall("#[0-9A-Fa-f]{6}", tables)}


@pytest.mark.parametrize("theme", THEMES)
def test_every_mark_is_4_5_to_1_from_its_page(theme: str) -> None:
    marks = {colour: recoloured(colour, THEMES[theme].colours) for colour in all_colours()}
    weak = {name: contrast(mark, PAGES[theme]) for name, mark in marks.items()}
    assert {name: seen for name, seen in weak.items() if seen < LEAST_CONTRAST} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_text_is_4_5_to_1_from_its_page_and_on_a_bar(theme: str) -> None:
    layout = THEMES[theme].template.layout
    assert layout.paper_bgcolor == PAGES[theme]
    assert contrast(layout.font.color, PAGES[theme]) >= 7
    (bar,) = THEMES[theme].template.data.bar
    for colour in runs(theme):
        assert contrast(bar.insidetextfont.color, colour) >= LEAST_CONTRAST


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("sight", SIGHTS)
def test_runs_stay_apart_for_every_colour_vision(theme: str, sight: str) -> None:
    assert least_distance(runs(theme)[:6], sight) > 25
    assert least_distance(runs(theme), sight) > 7, "dashes and symbols tell these apart"


def test_only_colours_are_replaced() -> None:
    numbers = np.arange(3)
    found = recoloured({"a": ["red", "#0072B2", 3], "x": numbers}, {"#0072B2": "#111111"})
    assert found["a"] == ["red", "#111111", 3]
    assert found["x"] is numbers


DRAW = """
async ([figure, width, height]) => Plotly.toImage(
  figure, {format: "svg", width, height, imageDataOnly: true})
"""
REPLACE = "([part, colours]) => recoloured(part, colours)"


@pytest.fixture(scope="module")
def plotly_page(chromium: Chromium) -> Iterator[Any]:
    """An empty page with plotly.js, without a network."""
    with chromium.page(offline=True) as page:
        page.add_script_tag(content=get_plotlyjs())
        page.add_script_tag(content=asset("recoloured.js"))
        yield page


@pytest.mark.slow
@pytest.mark.browser
def test_the_browser_replaces_colours_as_python_does(plotly_page: Any) -> None:
    figure = DRAWN["memory"]().to_plotly_json()
    for theme in THEMES.values():
        ours = recoloured(json.loads(json.dumps(figure, default=list)), theme.colours)
        theirs = plotly_page.evaluate(
            REPLACE, [json.loads(json.dumps(figure, default=list)), dict(theme.colours)]
        )
        assert theirs == ours


@pytest.mark.browser
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_stands_out(name: str, theme: str, plotly_page: Any) -> None:
    figure = picture(DRAWN[name](), Caption("a source", "http://127.0.0.1:1/"), theme)
    given = json.loads(figure.to_json())
    layout = given["layout"]
    svg = plotly_page.evaluate(DRAW, [given, layout["width"], layout["height"]])
    root = ET.fromstring(svg)
    assert {said: seen for said, seen in contrasts(root, PAGES[theme]) if seen < 4.5} == {}


def contrasts(root: ET.Element, page: str) -> Iterator[tuple[str, float]]:
    """Yield texts outside bars and cells, and opaque lines, with their contrast to the page."""
    for each in root.iter():
        style, kind = each.get("style", ""), each.get("class", "")
        if each.tag.endswith("}text") and "bartext" not in kind and not is_cell(each):
            for colour in hexes(r"fill: rgb\(([^)]*)\)", style):
                yield "".join(each.itertext()), contrast(colour, page)
        elif kind == "js-line" and "stroke-width: 0px" not in style:
            for colour in hexes(r"stroke: rgb\(([^)]*)\)", style):
                yield kind, contrast(colour, page)


def is_cell(text: ET.Element) -> bool:
    """Whether it stands in a cell of the heat map, whose colour its own test knows."""
    return bool(re.fullmatch(r"\d+\.\d", "".join(text.itertext()))) and (
        text.get("class") == "annotation-text"
    )


def hexes(pattern: str, style: str) -> list[str]:
    found = re.findall(pattern, style)
    return ["#" + "".join(f"{int(part):02x}" for part in one.split(",")) for one in found]
