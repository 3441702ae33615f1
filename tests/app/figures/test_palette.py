"""Colours and looks: contrast on both pages, and for eyes that do not see red or green."""

import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app import figures
from servetwin.app.figures.canvas import COLOURS, DARK_PAGE, DASHES, LIGHT_PAGE
from tests.support.colour_vision import contrast, least_distance


@pytest.mark.parametrize("colour", COLOURS)
def test_every_colour_stands_out_from_a_light_and_from_a_dark_page(colour: str) -> None:
    assert contrast(colour, LIGHT_PAGE) >= 3
    assert contrast(colour, DARK_PAGE) >= 3


@pytest.mark.parametrize("sight", ["all cones", "no red", "no green"])
def test_the_first_six_colours_stay_apart(sight: str) -> None:
    assert least_distance(COLOURS[:6], sight) > 20


def test_looks_keep_their_place_and_differ_without_colour() -> None:
    some = figures.looks(["x", "y", "x", "z"])
    assert figures.looks(["x", "y"])["y"] == some["y"]
    many = figures.looks(map(str, range(42))).values()
    assert len({(look.dash, look.symbol) for look in many}) == 42
    assert {look.dash for look in many} == set(DASHES)
