"""Figures of a grid of scenarios: the frontier and the heat map."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from plotly.colors import sample_colorscale  # type: ignore[import-untyped]

from servetwin.app import figures
from servetwin.app.dashboard.policies.frontier import Y_TITLES, panels
from servetwin.app.figures.canvas import COLOURS
from servetwin.sim.experiments.sweep import GOODPUT, THROUGHPUT
from tests.support.colour_vision import contrast
from tests.support.grid_frames import grid_frame


def test_the_figure_has_a_line_per_series_the_front_the_star_and_the_region() -> None:
    frame = grid_frame()
    figure = figures.frontier(
        frame, GOODPUT, Y_TITLES[GOODPUT], {"": ["4 sequences", "8 sequences"]},
        share=0.99, best=1, tpot_limit_s=0.02,
    )  # fmt: skip
    assert figure.layout.xaxis.title.text == "speed for a user, tokens/s (1 / median TPOT)"
    assert figure.layout.yaxis.title.text == Y_TITLES[GOODPUT]
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces) == ["Pareto front", "4 sequences", "8 sequences", "best within the SLO"]
    assert traces["8 sequences"].marker.symbol[1].endswith("-open")
    assert not traces["4 sequences"].marker.symbol[1].endswith("-open")
    assert traces["4 sequences"].customdata == (0, 1)
    assert "99.2 % within the SLO" in traces["4 sequences"].text[1]
    assert list(traces["best within the SLO"].x) == [40.0]
    (region,) = figure.layout.shapes
    assert (region.x0, region.x1) == (50.0, figure.layout.xaxis.range[1])
    assert "Best is 4 sequences at 2 requests/s" in figures.alt_text(figure)
    empty = figures.frontier(
        frame.iloc[:0], THROUGHPUT, Y_TITLES[THROUGHPUT], {"": []}, share=0.99, tpot_limit_s=0.02
    )
    assert [len(trace.x) for trace in empty.data] == [0]


def test_more_than_six_series_are_panels_with_the_same_axes_and_the_others_in_grey() -> None:
    series = [f"policy {number}" for number in range(1, 13)]
    groups = panels(series)
    assert list(groups) == ["policy 1 to policy 6", "policy 7 to policy 12"]
    frame = grid_frame(series, [(60.0 - place, 1.0 + place, 1.0) for place in range(24)])
    figure = figures.frontier(frame, GOODPUT, Y_TITLES[GOODPUT], groups, share=0.99, best=23)
    for panel, names in enumerate(groups.values(), start=1):
        legend = "legend" if panel == 1 else f"legend{panel}"
        of_panel = [trace for trace in figure.data if trace.legend == legend]
        named = [trace for trace in of_panel if trace.name in names]
        assert [trace.name for trace in named] == names
        assert len({(trace.line.color, trace.line.dash) for trace in named}) == len(names)
        assert sum(trace.showlegend is False for trace in of_panel) == 12 - len(names)
        assert sum(trace.name == "best within the SLO" for trace in of_panel) == (panel == 2)
    assert figure.layout.legend2.title.text == "policy 7 to policy 12"
    assert {axis.range for axis in figure.select_yaxes()} == {(0, 1.06 * 24)}
    assert {trace.line.color for trace in figure.data if trace.mode == "lines+markers"} <= set(
        COLOURS[:6]
    )


def test_the_heat_map_has_categories_and_its_values_in_words() -> None:
    shares = pd.DataFrame([[1.0, 0.5], [np.nan, 0.25]], ["<b>a", "b"], [2.0, 16.0])
    figure = figures.heat_map(shares, "requests per second", "SLO attainment, %")
    (cells,) = figure.data
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "category"
    assert (cells.x, cells.y) == (("2", "16"), ("&lt;b>a", "b"))
    assert [note.text for note in figure.layout.annotations] == ["100.0", "50.0", "25.0"]
    places = [(note.x, note.y) for note in figure.layout.annotations]
    assert places == [(0, 0), (1, 0), (1, 1)], "a text such as 1 would be taken for a place"
    assert (cells.zmin, cells.zmax) == (0, 100)
    assert "25.0 at 16" in figures.alt_text(figure)


def test_shares_stand_out_from_their_cells() -> None:
    shares = pd.DataFrame([np.linspace(0, 1, 101), np.full(101, np.nan)], ["a", "b"], range(101))
    figure = figures.heat_map(shares, "rate, requests/s", "SLO attainment, %")
    written = [note for note in figure.layout.annotations if note.y == 0]
    assert [note.text for note in written[:3]] == ["0.0", "1.0", "2.0"]
    assert len(written) == len(figure.layout.annotations) == 101, "undefined cells stay empty"
    for note, share in zip(written, np.linspace(0, 1, 101), strict=True):
        (cell,) = sample_colorscale("Cividis", [share], colortype="tuple")
        colour = "#" + "".join(f"{round(255 * part):02x}" for part in cell)
        assert contrast(note.font.color, colour) >= 4.5, share
