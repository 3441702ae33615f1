"""Clusters of simple servers wait as queueing theory says."""

import numpy as np
import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.step_times.step_time import LinearStepTime
from tests.support.checked import request
from tests.support.effort import REDUCTION, WIDENING
from tests.support.theory.queues import md1_wait_s

ONE_SECOND = LinearStepTime.of({"constant": 1.0})
T_99_9 = 3.85
"""Two-sided 99.9 % quantile of Student's t with 20 degrees of freedom."""
REPLICATIONS = 21
ONE_SLOT = PolicyConfig(
    max_seqs=1, kv_tokens=1_000_000, max_model_len=1_000_000, token_budget=1_000_000
)
WARM_UP = 500 // REDUCTION


def check_inside(means: list[float], exact: float, power: float) -> None:
    half_width = T_99_9 * np.std(means, ddof=1) / np.sqrt(len(means))
    assert half_width < WIDENING * power * exact, "the test has no power"
    assert abs(np.mean(means) - exact) < half_width


@pytest.mark.slow
def test_random_routing_makes_independent_queues() -> None:
    """Splitting Poisson arrivals at random leaves each of 4 replicas an M/D/1 queue at 50 %."""
    pools = [Pool(ONE_SLOT, ONE_SECOND, 4)]
    means = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng(seed)
        arrivals_s = np.cumsum(rng.exponential(1 / 2.0, 6000 // REDUCTION)).tolist()
        requests = [request(str(i), at_s, output=1) for i, at_s in enumerate(arrivals_s)]
        frame = simulate_cluster(requests, pools, RouterConfig("random"), seed=seed).requests
        means.append(float(frame["queue_s"][WARM_UP:].mean()))
    check_inside(means, md1_wait_s(0.5, 1.0), power=0.06)
