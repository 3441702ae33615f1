"""Curves of a sweep: measured and predicted over the load."""

from dataclasses import replace

import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.figures.canvas import alt_text
from servetwin.app.figures.load_curves import level_curves
from servetwin.loadtest.sweep.level import COMPLETED, SHARE
from tests.support.swept_levels import swept, with_late_level


def test_levels_stand_at_their_rate_and_the_ends_at_what_they_completed() -> None:
    sweep = swept("rates", levels=3)
    drawn = dict(level_curves(sweep))
    assert [*drawn] == [
        "Share of requests within the SLO", "TTFT, p50", "TTFT, p99", "TPOT, p50", "TPOT, p99",
        "Output throughput",
    ]  # fmt: skip
    measured, predicted = drawn["Share of requests within the SLO"].data
    assert (measured.name, predicted.name) == ("measured", "predicted")
    assert list(measured.x) == pytest.approx([1.0, 3.25, 5.5, 7.75, 10.0])
    by_rate = {level.figures[COMPLETED]: level.figures[SHARE] for level in sweep.levels}
    assert list(measured.y) == [by_rate[rate] for rate in sorted(by_rate, key=lambda r: r or 0)]
    assert measured.error_y.arrayminus[1] == pytest.approx(0.02)
    assert list(drawn["TTFT, p50"].data[0].y) == [100.0] * 5
    assert all(alt_text(figure) for figure in drawn.values())


def test_users_stand_at_their_number_and_all_at_once_nowhere() -> None:
    drawn = dict(level_curves(swept("users", levels=2)))
    assert list(drawn["TTFT, p99"].data[0].x) == [1, 4, 8]


def test_without_a_prediction_there_is_one_line_and_late_levels_are_left_out() -> None:
    sweep = with_late_level(swept("rates", levels=3))
    plain = replace(sweep, levels=tuple(replace(one, predicted=None) for one in sweep.levels))
    for _, figure in level_curves(plain):
        assert [len(line.x) for line in figure.data] == [4]
