"""Fleets against what is known of queues: a server that breaks down, and one more at a time."""

from math import exp, sqrt

import numpy as np
import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.core.autoscaling import parse_rule
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.faults import parse_faults
from servetwin.sim.core.fleet.gateway import FleetPlan
from servetwin.sim.core.pools import Pool
from servetwin.sim.step_times.step_time import LinearStepTime, NoiseSample
from servetwin.workloads.request import Request
from tests.sim.core.test_cluster import ONE_SECOND
from tests.support.checked import request
from tests.support.effort import REDUCTION, WIDENING

LONGEST = 30_000
ONE_AT_A_TIME = PolicyConfig(
    batching="continuous", kv_tokens=40_000, max_model_len=40_000, max_seqs=1, token_budget=LONGEST
)
MEAN_TOKENS, ROW_S = 1000, 0.001
"""A request is one step, as long as its prompt: 1 s on average, and almost exponential."""
SERVER = LinearStepTime.of({"rows_from_0": ROW_S})


def arriving(rates_per_s: list[float], each: int, seed: int) -> list[Request]:
    """Poisson arrivals, so many at each rate, of exponential service times."""
    rng = np.random.default_rng(seed)
    gaps_s = np.concatenate([rng.exponential(1 / rate, each) for rate in rates_per_s])
    at_s = np.cumsum(gaps_s)
    tokens = np.ceil(rng.exponential(MEAN_TOKENS, len(at_s))).clip(1, LONGEST)
    rows = zip(at_s.tolist(), tokens.tolist(), strict=True)
    return [request(str(n), at, int(size), 1) for n, (at, size) in enumerate(rows)]


@pytest.mark.parametrize("seed", range(5))
def test_a_server_that_breaks_down_starts_its_requests_anew_in_their_order(seed: int) -> None:
    """An M/M/1 queue with breakdowns, by Lindley's recursion with interrupted services."""
    requests = arriving([0.4], 300, seed)
    rng = np.random.default_rng(100 + seed)
    crashes, at_s = list[tuple[float, float]](), 0.0
    while at_s < requests[-1].arrival_s:
        at_s += float(rng.exponential(20.0))
        crashes.append((at_s, float(rng.exponential(3.0)) + 0.1))
        at_s += crashes[-1][1] + 0.1
    plan = " ".join(f"crash:replica=0,at_s={at!r},for_s={down!r}" for at, down in crashes)
    fleet = FleetPlan(1, parse_faults(plan), None, 0.0, 1000)
    pools = [Pool(ONE_AT_A_TIME, SERVER)]
    of = simulate_cluster(requests, pools, closed_loop=False, fleet=fleet).requests
    ends_s, free_s = [], 0.0
    for asked in requests:
        start_s, service_s = max(asked.arrival_s, free_s), asked.prompt_tokens * ROW_S
        for at, down in crashes:
            if at < start_s + service_s and start_s < at + down:
                start_s = at + down
        free_s = start_s + service_s
        ends_s.append(free_s)
    assert (of["status"] == "finished").all()
    np.testing.assert_allclose(of["last_token_s"], ends_s, rtol=1e-9)


@pytest.mark.slow
def test_a_fleet_that_doubles_with_its_load_is_quasi_steady() -> None:
    """Behind a random router each replica is M/M/1 at 0.5: two seconds, before and after."""
    each = 12_000 // REDUCTION
    requests = arriving([0.5, 1.0], each, 1)
    doubled_s = requests[each].arrival_s
    rule = parse_rule(f"schedule:steps=1/2@{doubled_s:.3f},max=2,interval_s=1")
    of = simulate_cluster(
        requests, [Pool(ONE_AT_A_TIME, SERVER, 2)], RouterConfig("random"), closed_loop=False,
        fleet=FleetPlan(1, (), rule),
    )  # fmt: skip
    sojourns_s = of.requests["e2e_s"].to_numpy()
    for phase in (sojourns_s[:each], sojourns_s[each:]):
        batches = phase[: len(phase) // 40 * 40].reshape(40, -1).mean(axis=1)
        error_s = float(batches.std(ddof=1)) / sqrt(len(batches))
        assert abs(phase.mean() - 2.0) < 2.7 * error_s * WIDENING
    hours = of.extra["fleet"]["replica_hours"]
    end_s = of.requests["last_token_s"].max()
    assert hours == pytest.approx((2 * end_s - doubled_s) / 3600, abs=2 / 3600)


@pytest.mark.parametrize("hedge_s", [0.0, 1.0])
def test_a_hedge_on_idle_servers_is_the_minimum_of_two(hedge_s: float) -> None:
    """Exponential services of 1 s: hedged after N seconds they take 1 - exp(-N) / 2."""
    count = 4000 // REDUCTION
    ranks = (np.arange(4096) + 0.5) / 4096
    pools = [Pool(ONE_AT_A_TIME, ONE_SECOND, 2, noise=NoiseSample(-np.log1p(-ranks)))]
    requests = [request(str(n), 30.0 * n, 4, 1) for n in range(count)]
    fleet = FleetPlan(2, hedge_s=hedge_s)
    of = simulate_cluster(requests, pools, closed_loop=False, fleet=fleet, seed=7)
    times_s = of.requests["e2e_s"]
    error_s = times_s.std(ddof=1) / sqrt(count)
    assert abs(times_s.mean() - (1 - exp(-hedge_s) / 2)) < 2.576 * error_s
    hedged = of.extra["fleet"]["hedged"] / count
    assert hedged == pytest.approx(exp(-hedge_s), abs=2.576 / sqrt(4 * count))
