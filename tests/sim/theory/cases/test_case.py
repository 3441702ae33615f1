"""Little's law on the servers of the selftest."""

import numpy as np
import pytest

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.metrics import summarize
from servetwin.sim.step_times.step_time import LinearStepTime
from tests.support.queue_cases.case import trace
from tests.support.theory.queues import littles_law_gap, number_integral_s


@pytest.mark.parametrize("config", [PolicyConfig(kv_tokens=2000), PolicyConfig(batching="static")])
def test_littles_law_holds_exactly(config: PolicyConfig) -> None:
    rng = np.random.default_rng(5)
    arrivals_s = np.cumsum(rng.exponential(0.05, 500))
    prompts, outputs = rng.integers(1, 60, (2, 500))
    model = LinearStepTime.of({"constant": 0.01, "rows_from_0": 0.001})
    run = simulate(trace(arrivals_s, prompts, outputs), build_scheduler(config), model)
    spans = run.requests[["scheduled_s", "last_token_s"]].to_numpy().T
    assert littles_law_gap(*spans) < 1e-9
    summary = summarize(run.requests)
    rate_per_s = 500 / summary["makespan_s"]
    mean_inside = number_integral_s(*spans) / summary["makespan_s"]
    assert mean_inside == pytest.approx(rate_per_s * summary["e2e_s"]["mean"], rel=1e-9)
