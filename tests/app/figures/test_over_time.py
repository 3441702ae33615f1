"""Figures along the run: points, medians, differences and throughput; the state of a server."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app import figures
from servetwin.app.figures.over_time import token_rates_per_s
from tests.support.figure_frames import requests_frame, steps_frame


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


def test_the_state_is_that_of_the_steps_and_idle_between_them() -> None:
    one, two = steps_frame(replica=0), steps_frame(replica=1)
    state = figures.state_of_steps(pd.concat([one, two]), 1000)
    busy = state["at_s"] % 1 < 0.5
    expected = np.floor(state["at_s"]) + 1
    assert (state["running"] == np.where(busy, 2 * expected, 0)).all()
    assert state["kv_usage"].to_numpy() == pytest.approx(
        np.where(busy, 0.01 * (expected - 1), 0), abs=1e-12
    )
    assert figures.state_of_steps(one, None)["kv_usage"].isna().all()
    assert figures.state_of_steps(one.drop(columns="replica"), 1000).empty


def test_a_few_requests_have_whole_ticks_and_peaks_are_those_of_the_moments_shown() -> None:
    state = figures.state_of_steps(steps_frame(replica=0), 1000)
    state = state.assign(running=40.0, waiting=1.0)
    drawn = figures.server_over_time({"a": state}, figures.looks(["a"]))
    assert (drawn.layout.yaxis.dtick, drawn.layout.yaxis2.dtick) == (None, 1)
    said = figures.alt_text(drawn)
    assert "at most 40 requests running, 1 waiting, " in said
    assert said.endswith(" at the points shown.")
