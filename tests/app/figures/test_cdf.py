"""Cumulative distributions."""

import numpy as np
import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app import figures
from tests.support.figure_frames import requests_frame

A, B = requests_frame(seed=1), requests_frame(seed=2)


TWO = {"A": A, "B": B}


LOOKS = figures.looks(TWO)


def test_a_cdf_crosses_a_half_at_the_median_and_has_the_limit() -> None:
    figure = figures.latency_cdf(TWO, "ttft_s", LOOKS, 0.5)
    line, _, limit = figure.data
    assert np.interp(50, line.y, line.x) == pytest.approx(A["ttft_s"].median() * 1e3, rel=0.1)
    assert line.x[-1] == pytest.approx(A["ttft_s"].max() * 1e3)
    assert list(limit.x) == [500, 500]
    assert limit.name == "SLO 500 ms"
