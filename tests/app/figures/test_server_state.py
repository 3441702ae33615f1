"""The state of a server over time."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from app import figures
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
