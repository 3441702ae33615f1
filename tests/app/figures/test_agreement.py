"""A prediction beside what was measured, and those of real GPUs by their evidence."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("plotly", reason="figures need plotly")
pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.figures import agreement, canvas, frontier
from servetwin.app.words import LOOKS, asset_table
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.records.metrics import SLO
from tests.support.drawn_figures import LOOKS as LOOKS_OF_RUNS
from tests.support.drawn_figures import A
from tests.support.grid_frames import grid_frame

Y_TITLE = "goodput per replica, requests/s"
TARGET = SLOTarget(SLO(tpot_s=0.02), 0.99)


def test_a_run_agrees_with_itself_on_the_diagonal() -> None:
    points = agreement.predicted_against_measured(A, {"A": A}, "ttft_s", LOOKS_OF_RUNS).data[0]
    assert list(points.x) == list(points.y)
    middle = points.text.index("p50")
    assert points.x[middle] == pytest.approx(A["ttft_s"].median() * 1e3, rel=1e-6)


EVIDENCE = asset_table("words.yaml")["evidence"]
METRICS = ("ttft_s", "tpot_s")
ROWS = pd.DataFrame(
    {
        "gpu": gpu, "evidence": kind, "metric": metric, "point": point,
        "predicted": 1.1 * (1 + place), "measured": 1.0 * (1 + place), "error": 0.1,
    }
    for gpu in ("A", "B")
    for kind in EVIDENCE
    for metric in METRICS
    for place, point in enumerate(("mean", "p90"))
)  # fmt: skip


@pytest.fixture
def drawn() -> canvas.Figure:
    return agreement.predicted_by_evidence(ROWS)


def points(figure: canvas.Figure) -> list[canvas.Figure]:
    return [trace for trace in figure.data if trace.mode == "markers" and trace.x[0] is not None]


def test_every_figure_is_a_point_in_the_panel_of_its_metric(drawn: canvas.Figure) -> None:
    found = points(drawn)
    assert [trace.xaxis for trace in found] == ["x"] * len(EVIDENCE) + ["x2"] * len(EVIDENCE)
    assert all(list(trace.x) == [1000, 2000] * 2 for trace in found)
    assert found[0].text[0] == "A, mean: predicted 1,100 ms, measured 1,000 ms, +10.0 %"
    titles = [axis.title.text for axis in drawn.select_xaxes()]
    assert titles == ["measured<br>TTFT, ms", "measured<br>TPOT, ms"]


def test_both_axes_are_logarithmic_with_equal_ends_and_ticks(drawn: canvas.Figure) -> None:
    for x, y in zip(drawn.select_xaxes(), drawn.select_yaxes(), strict=True):
        assert (x.type, y.type) == ("log", "log")
        assert (x.range, x.tickvals) == (y.range, y.tickvals)
        assert np.log10([1000, 2200]) == pytest.approx(x.range, abs=0.1)
        assert x.ticktext == ("1,000", "1,500", "2,000")


def test_evidence_is_a_colour_and_a_style_and_a_gpu_a_symbol(drawn: canvas.Figure) -> None:
    first = points(drawn)[: len(EVIDENCE)]
    assert [trace.name for trace in first] == [words["label"] for words in EVIDENCE.values()]
    colours = [LOOKS[words["origin"]][0] for words in EVIDENCE.values()]
    assert [trace.marker.color for trace in first] == colours
    symbols = [symbol for trace in first for symbol in trace.marker.symbol[::2]]
    assert len(set(symbols)) == 2 * len(EVIDENCE)
    legend = [trace.name for trace in drawn.data if trace.showlegend is not False]
    assert legend == ["within 10 %", "equal", *(trace.name for trace in first), "A", "B"]


def test_the_largest_errors_are_said_in_words(drawn: canvas.Figure) -> None:
    assert "A, layer times: 10.0 %" in drawn.alt


def test_the_figure_has_a_line_per_series_the_front_the_star_and_the_region() -> None:
    frame = grid_frame()
    figure = frontier.frontier(frame, TARGET)
    assert figure.layout.xaxis.title.text == "speed for a user, tokens/s (1 / median TPOT)"
    assert figure.layout.yaxis.title.text == Y_TITLE
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces) == ["Pareto front", "4 sequences", "8 sequences", "best within the SLO"]
    assert traces["8 sequences"].marker.symbol[1].endswith("-open")
    assert not traces["4 sequences"].marker.symbol[1].endswith("-open")
    assert traces["4 sequences"].customdata == (0, 1)
    assert "99.2 % within the SLO" in traces["4 sequences"].text[1]
    assert list(traces["best within the SLO"].x) == [40.0]
    (region,) = figure.layout.shapes
    assert (region.x0, region.x1) == (50.0, figure.layout.xaxis.range[1])
    assert "Best is 4 sequences at 2 requests/s" in figure.alt
    empty = frontier.frontier(frame.iloc[:0], TARGET)
    assert [len(trace.x) for trace in empty.data] == [0]
