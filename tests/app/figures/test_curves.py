"""Curves: distributions, How many, sweeps and fits; bars whose parts add up."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("plotly", reason="figures need plotly")
pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.trust.profile_fit import decode_curve
from servetwin.app.figures import canvas, curves, load_curves, stacked_bars
from servetwin.app.figures.load_curves import level_curves
from servetwin.app.scenario.answers import Answer, CurvePoint
from servetwin.loadtest.sweep.level import COMPLETED, SHARE
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.records.metrics import SLO
from servetwin.sim.step_times.profile import load_profile
from tests.support.drawn_figures import LOOKS, TWO, A
from tests.support.figure_frames import steps_frame
from tests.support.swept_levels import swept, with_late_level


def test_a_cdf_crosses_a_half_at_the_median_and_has_the_limit() -> None:
    figure = curves.latency_cdf(TWO, "ttft_s", LOOKS, 0.5)
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
    figure = load_curves.count_curves([FOUR, NEVER], TARGET, "GPUs", canvas.looks("ab"))
    curve, hopeless = figure.data
    assert list(curve.y) == [800.0, 400.0]
    assert [symbol.endswith("-open") for symbol in curve.marker.symbol] == [True, False]
    assert list(curve.error_y.array) == pytest.approx([200.0, 0.0])
    assert list(curve.error_y.arrayminus) == pytest.approx([100.0, 0.0])
    (low, high), top = figure.layout.xaxis.range, figure.layout.yaxis.range[1]
    assert 2.5 < low < 3 < 4 < high < 4.5
    assert (hopeless.x[0], top) == (256, 2000.0)
    assert load_curves.is_cut([FOUR, NEVER])
    assert not load_curves.is_cut([FOUR])
    assert "800 at 3, 400 at 4" in figure.alt


def test_what_is_overloaded_is_a_cross_above_the_limit_whatever_its_short_trace_saw() -> None:
    points = (CurvePoint(3, 0.56, False, load=1.15), CurvePoint(4, 0.8, True, load=0.86))
    figure = load_curves.count_curves(
        [Answer("a", "devices", 4, points=points)], TARGET, "GPUs", canvas.looks("a")
    )
    curve, crosses = figure.data
    assert (list(curve.x), list(crosses.x)) == ([4], [3])
    assert crosses.marker.symbol == "x"
    assert 500 < crosses.y[0] < figure.layout.yaxis.range[1]
    assert "load is 115 % of the capacity" in crosses.hovertext[0]
    assert "overloaded at 3, 400 at 4" in figure.alt


def test_latency_by_load_has_the_limit_and_todays_load() -> None:
    rows = {
        "series": ["a"] * 3 + ["b"],
        "rate": [2.0, 4.0, 8.0, 2.0],
        "ttft_s_p99": [0.1, 0.4, 9, None],
    }
    points, looks = pd.DataFrame(rows), canvas.looks("ab")
    figure = load_curves.latency_by_load(points, "ttft_s", looks, limit_s=0.5, now_per_s=3.0)
    (curve,) = figure.data
    assert list(curve.y) == pytest.approx([100, 400, 9000])
    assert [symbol.endswith("-open") for symbol in curve.marker.symbol] == [False, False, True]
    assert [shape.y0 for shape in figure.layout.shapes if shape.y0 == shape.y1] == [500]
    assert [shape.x0 for shape in figure.layout.shapes if shape.x0 == shape.x1] == [3.0]
    assert figure.layout.yaxis.range == (0, 2000), "what is far above the limit is cut off"
    assert "100 at 2, 400 at 4, 9,000 at 8 requests/s" in figure.alt
    free = load_curves.latency_by_load(points, "ttft_s", looks, limit_s=None, now_per_s=3.0)
    assert len(free.layout.shapes) == 1


CPU = load_profile("base-cpu").layouts["paged"]


def test_the_unmeasured_part_of_a_curve_is_drawn_apart() -> None:
    looks = canvas.looks(["paged"])
    drawn = curves.step_time_curve({"paged": decode_curve(CPU)}, "decodes, count", looks)
    lines = {trace.name: trace for trace in drawn.data}
    assert max(lines["paged"].x) == min(lines["paged, not measured"].x) == 16
    assert lines["paged, not measured"].line.dash == "dot"
    assert drawn.layout.xaxis.title.text == "decodes, count"


def test_levels_stand_at_their_rate_and_the_ends_at_what_they_completed() -> None:
    sweep = swept("rates", levels=3)
    drawn = dict(level_curves(sweep))
    assert [*drawn] == [
        "TTFT, p99", "TPOT, p99", "Share of requests within the SLO", "TTFT, p50", "TPOT, p50",
        "Output throughput",
    ]  # fmt: skip
    measured, predicted = drawn["Share of requests within the SLO"].data
    assert (measured.name, predicted.name) == ("measured", "predicted")
    assert list(measured.x) == pytest.approx([1.0, 3.25, 5.5, 7.75, 10.0])
    by_rate = {level.figures[COMPLETED]: level.figures[SHARE] for level in sweep.levels}
    assert list(measured.y) == [by_rate[rate] for rate in sorted(by_rate, key=lambda r: r or 0)]
    assert measured.error_y.arrayminus[1] == pytest.approx(0.02)
    assert list(drawn["TTFT, p50"].data[0].y) == [100.0] * 5
    assert all(figure.alt for figure in drawn.values())


def test_a_p99_has_its_limit_and_the_knee_and_overload_does_not_flatten_it() -> None:
    sweep = swept(wanted=0.975)
    over = {**sweep.levels[-1].figures, "ttft_s.p99": 40.0}
    levels = (*sweep.levels[:-1], replace(sweep.levels[-1], figures=over))
    figure = dict(level_curves(replace(sweep, levels=levels)))["TTFT, p99"]
    knee, limit = figure.layout.shapes
    assert limit.y0 == limit.y1 == pytest.approx(0.5)  # seconds, as the p99 is of 40 of them
    assert knee.x0 == knee.x1 == pytest.approx(5.0, rel=0.02)
    assert tuple(figure.layout.yaxis.range) == pytest.approx((0, 2.0))
    (knee,) = dict(level_curves(sweep))["TPOT, p99"].layout.shapes
    assert knee.x0 == pytest.approx(5.0, rel=0.02)
    assert len(figure.data[0].x) == len(sweep.levels) - 1  # all at once is no offered rate


def test_users_stand_at_their_number_and_all_at_once_nowhere() -> None:
    drawn = dict(level_curves(swept("users", levels=2)))
    assert list(drawn["TTFT, p99"].data[0].x) == [1, 4, 8]


def test_without_a_prediction_there_is_one_line_and_late_levels_are_left_out() -> None:
    sweep = with_late_level(swept("rates", levels=3))
    plain = replace(sweep, levels=tuple(replace(one, predicted=None) for one in sweep.levels))
    for _, figure in level_curves(plain):
        assert [len(line.x) for line in figure.data] == [4]


def test_what_a_scenario_rests_on_is_said_in_words_too() -> None:
    drawn = stacked_bars.provenance_bar(
        {"origins": {"measured here": 1.0}, "extrapolated": {"measured here": 0.25}}
    )
    assert [bar.x[0] for bar in drawn.data] == [75, 25]
    assert [bar.text for bar in drawn.data] == [
        "measured here 75 %",
        "extrapolated from it 25 %",
    ]
    assert len({bar.marker.color for bar in drawn.data}) == 1
    assert [bar.marker.pattern.shape for bar in drawn.data] == ["", "x"]
    lines = [line for bar in drawn.data for line in bar.name.split("<br>")]
    assert len(lines) > 2
    assert max(map(len, lines)) <= 64, "fits beside the controls at 900 px"
    assert "measured here 75 %, extrapolated from it 25 %." in drawn.alt
    assert stacked_bars.provenance_bar({"origins": {}, "extrapolated": {}}).alt.endswith(
        "no step was run."
    )


def test_memory_parts_add_up_and_have_known_names() -> None:
    with pytest.raises(KeyError, match="heap: a memory bar has weights"):
        stacked_bars.memory_bar({"A": {"heap": 1.0}}, "GiB")
    kv = {"live": 60, "reserved": 10, "cached": 5, "internal_waste": 3, "external_waste": 2}
    steps = steps_frame().assign(**{f"{k}_tokens": v for k, v in kv.items()}, free_tokens=20)
    parts = stacked_bars.mean_kv_parts(steps)
    assert parts == pytest.approx({"live": 60, "reserved": 10, "cached": 5, "waste": 5, "free": 20})
