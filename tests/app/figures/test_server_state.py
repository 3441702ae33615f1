"""The state of a server over time."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app import figures
from tests.support.figure_frames import steps_frame


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
