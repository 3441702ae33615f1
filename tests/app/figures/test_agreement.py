"""A prediction beside what was measured."""

import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app import figures
from tests.support.figure_frames import requests_frame

A, B = requests_frame(seed=1), requests_frame(seed=2)


TWO = {"A": A, "B": B}


LOOKS = figures.looks(TWO)


def test_a_run_agrees_with_itself_on_the_diagonal() -> None:
    points = figures.predicted_against_measured(A, {"A": A}, "ttft_s", LOOKS).data[0]
    assert list(points.x) == list(points.y)
    middle = points.text.index("p50")
    assert points.x[middle] == pytest.approx(A["ttft_s"].median() * 1e3, rel=1e-6)
