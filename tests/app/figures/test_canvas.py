"""The empty figure: spoken numbers, panels, samples; colours for eyes of every kind."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app import figures
from servetwin.app.figures.canvas import (
    COLOURS,
    DARK_PAGE,
    DASHES,
    LIGHT_PAGE,
    cdf_points,
    evenly,
    place_legend,
    spoken,
    stacked_canvas,
)
from tests.support.colour_vision import contrast, least_distance


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.00183, "0.00183"),
        (37.43, "37.4"),
        (999.6, "1,000"),
        (1461.2, "1,461"),
        (-305251, "-305,251"),
    ],
)
def test_a_number_is_said_in_three_digits_or_whole(value: float, said: str) -> None:
    assert spoken(value) == said


def test_each_panel_has_room_for_the_legend_above_it() -> None:
    figure = stacked_canvas("x, s", ["y, s"] * 3, "Three.", [200] * 3, legend_px=80)
    names = [place_legend(figure, row, f"panel {row}") for row in (1, 2, 3)]
    assert names == ["legend", "legend2", "legend3"]
    domains = [axis.domain for axis in figure.select_yaxes()]
    for name, domain, above in zip(names, domains, [None, *domains], strict=False):
        legend = figure.layout[name]
        assert (legend.y, legend.yanchor, legend.title.side) == (domain[1], "bottom", "top")
        if above:
            assert (above[0] - domain[1]) * (3 * 200 + 2 * 80) == pytest.approx(80)


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


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=2000))
def test_cut_distributions_keep_their_ends_and_their_order(values: list[float]) -> None:
    x, share = cdf_points(pd.Series(values), most=50)
    assert len(x) == min(len(values), 50)
    assert (x[0], x[-1], share[-1]) == (min(values), max(values), 1)
    assert (np.diff(x) >= 0).all()
    for at, part in zip(x, share, strict=True):
        assert np.mean(np.array(values) < at) < part <= np.mean(np.array(values) <= at)


@given(st.integers(1, 5000), st.integers(2, 300))
def test_samples_are_small_and_have_both_ends(count: int, most: int) -> None:
    sample = evenly(pd.DataFrame({"at": range(count)}), most)["at"].tolist()
    assert len(sample) == min(count, most)
    assert (sample[0], sample[-1]) == (0, count - 1)
    assert len(set(sample)) == len(sample)
