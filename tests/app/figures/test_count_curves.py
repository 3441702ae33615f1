"""The figure of How many: symbols, the limit, and what is cut."""

import pytest

from servetwin.app import figures
from servetwin.app.scenario.answers import Answer, CurvePoint
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.records.metrics import SLO

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
