"""Hidden and visible tokens: the simulator and the load tester mean the same by them."""

import numpy as np
import pandas as pd
import pytest

from servetwin.loadtest.run.client import run_load_test
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.mock_endpoint import chat, mocked, plan

HIDDEN, STEP_S = 8, 0.02
OUTPUTS = (3, 8, 9, 20, 30)
TRACE = Trace(
    tuple(
        Request(f"r{at}", 0.1 * at, 5, output, reasoning_tokens=min(HIDDEN, output))
        for at, output in enumerate(OUTPUTS)
    ),
    "made",
)


def simulated() -> pd.DataFrame:
    """Each alone on a server of steps as long as the mock's."""
    runs = [
        simulate([one], build_scheduler(PolicyConfig()), LinearStepTime.of({"constant": STEP_S}))
        for one in TRACE
    ]
    return pd.concat([run.requests for run in runs], ignore_index=True)


def live() -> pd.DataFrame:
    faults = plan(f"reasoning:tokens={HIDDEN}", ttft_ms=1e3 * STEP_S, itl_ms=1e3 * STEP_S)
    with mocked(faults) as (server,):
        return run_load_test(chat(server), TRACE).requests


def test_the_same_requests_have_the_same_hidden_tokens_and_no_early_visible_one() -> None:
    predicted, measured = simulated(), live()
    for name in ("request_id", "status", "reasoning_tokens", "output_tokens"):
        assert predicted[name].tolist() == measured[name].tolist()
    assert predicted["first_output_s"].isna().tolist() == [True, True, False, False, False]
    assert measured["first_output_s"].isna().equals(predicted["first_output_s"].isna())
    wanted_s = predicted["ttfo_s"].dropna()
    assert wanted_s.tolist() == pytest.approx([(HIDDEN + 1) * STEP_S] * 3)
    assert (measured["ttfo_s"].dropna() > wanted_s - 1e-3).all()
    for frame in (predicted, measured):
        since_s = frame["first_output_s"] - frame["scheduled_s"]
        np.testing.assert_allclose(frame["ttfo_s"], since_s, rtol=0, atol=1e-12)


@pytest.mark.quiet
def test_the_first_visible_token_comes_when_it_was_predicted() -> None:
    """Of the three, the one that the machine disturbed least."""
    off_s = (live()["ttfo_s"] - simulated()["ttfo_s"]).dropna()
    assert len(off_s) == 3
    assert off_s.abs().min() < 0.005
