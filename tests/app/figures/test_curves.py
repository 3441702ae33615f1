"""Curves: distributions, How many, and the fit of a profile."""

import numpy as np
import pytest

pytest.importorskip("plotly", reason="figures need plotly")
pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app import figures
from servetwin.app.dashboard.trust.profile_fit import decode_curve
from servetwin.app.scenario.answers import Answer, CurvePoint
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.records.metrics import SLO
from servetwin.sim.step_times.profile import load_profile
from tests.support.drawn_figures import LOOKS, TWO, A


def test_a_cdf_crosses_a_half_at_the_median_and_has_the_limit() -> None:
    figure = figures.latency_cdf(TWO, "ttft_s", LOOKS, 0.5)
    line, _, limit = figure.data
    assert np.interp(50, line.y, line.x) == pytest.approx(A["ttft_s"].median() * 1e3, rel=0.1)
    assert line.x[-1] == pytest.approx(A["ttft_s"].max() * 1e3)
    assert list(limit.x) == [500, 500]
    assert limit.name == "SLO 500 ms"


TARGET = SLOTarget(SLO(ttft_s=0.5), 0.99)
POINTS = (CurvePoint(3, 1.6, False, (1.4, 2.0), 0, 20), CurvePoint(4, 0.8, True))
FOUR = Answer("a", "devices", 4, points=POINTS)
NEVER = Answer("b", "devices", None, points=(CurvePoint(256, 9.0, False),))


def test_filled_symbols_hold_and_a_hopeless_candidate_does_not_stretch_the_axis() -> None:
    figure = figures.count_curves([FOUR, NEVER], TARGET, "GPUs", figures.looks("ab"))
    curve, hopeless = figure.data
    assert list(curve.y) == [800.0, 400.0]
    assert [symbol.endswith("-open") for symbol in curve.marker.symbol] == [True, False]
    assert list(curve.error_y.array) == pytest.approx([200.0, 0.0])
    assert list(curve.error_y.arrayminus) == pytest.approx([100.0, 0.0])
    (low, high), top = figure.layout.xaxis.range, figure.layout.yaxis.range[1]
    assert 2.5 < low < 3 < 4 < high < 4.5
    assert (hopeless.x[0], top) == (256, 2000.0)
    assert figures.is_cut([FOUR, NEVER])
    assert not figures.is_cut([FOUR])
    assert "800 at 3, 400 at 4" in figures.alt_text(figure)


CPU = load_profile("base-cpu").layouts["paged"]


def test_the_unmeasured_part_of_a_curve_is_drawn_apart() -> None:
    looks = figures.looks(["paged"])
    drawn = figures.step_time_curve({"paged": decode_curve(CPU)}, "decodes, count", looks)
    lines = {trace.name: trace for trace in drawn.data}
    assert max(lines["paged"].x) == min(lines["paged, not measured"].x) == 16
    assert lines["paged, not measured"].line.dash == "dot"
    assert drawn.layout.xaxis.title.text == "decodes, count"


def test_half_of_the_steps_are_below_the_median_residual() -> None:
    noise = {"paged": CPU.noise}
    line, *_ = figures.residual_cdf(noise, figures.looks(noise)).data
    assert np.interp(50, line.y, line.x) == pytest.approx(100 * (np.median(CPU.noise) - 1), abs=0.1)
