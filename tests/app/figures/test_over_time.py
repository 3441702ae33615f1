"""Figures along the run: points, medians, differences and throughput."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("plotly", reason="figures need plotly")

from servetwin.app import figures
from servetwin.app.figures.over_time import token_rates_per_s
from tests.support.figure_frames import requests_frame


def test_gains_figure_has_a_trace_per_direction() -> None:
    found = pd.DataFrame(
        {"request_id": ["r2", "r1", "r0"], "scheduled_s": [8.0, 9.0, 10.0],
         "difference": [1.0, 0.0, -0.5]}
    )  # fmt: skip
    figure = figures.gains_over_time(found, "a", "b")
    assert [trace.name for trace in figure.data] == ["faster under b", "slower under b"]
    assert [list(trace.y) for trace in figure.data] == [[-500.0], [1000.0]]
    assert figure.data[0].marker.symbol != figure.data[1].marker.symbol
    assert figure.layout.xaxis.title.text == "scheduled arrival, s"
    assert figure.layout.yaxis.title.text == "E2E latency difference, ms"
    assert "faster 1, slower 1" in figures.alt_text(figure)


def test_live_answers_stand_beside_the_predicted_median_and_the_limit() -> None:
    answers = pd.DataFrame({"sent_s": [0.5], "ttft_s": [0.1]})
    looks = figures.looks(("predicted", "measured"))
    figure = figures.live_latency(answers, requests_frame(30), "ttft_s", looks, 0.5)
    assert [trace.name for trace in figure.data] == ["measured so far", "predicted, running median"]
    assert list(figure.data[0].y) == [100.0]
    assert figure.layout.yaxis.title.text == "TTFT, ms"
    assert "median 100 ms" in figures.alt_text(figure)
    assert figure.layout.annotations[0].text == "SLO 500 ms"


@given(st.integers(1, 80), st.integers(0, 1000))
def test_throughput_holds_every_token(count: int, seed: int) -> None:
    frame = requests_frame(count, seed)
    edges_s, rates_per_s = token_rates_per_s(frame)
    assert (rates_per_s * np.diff(edges_s)).sum() == pytest.approx(frame["output_tokens"].sum())
