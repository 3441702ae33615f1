"""Capacity: the search on known thresholds, servers that theory knows, and the command."""

import json
from math import exp, factorial, floor, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.optimize import brentq
from scipy.stats import t as student

from servetwin.sim.experiments import capacity
from servetwin.sim.experiments.capacity import (
    Capacity,
    Replications,
    SLOTarget,
    containing,
    find_capacity,
    saturation_interval,
    saturation_rate_per_s,
)
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario, replicate
from servetwin.sim.experiments.search import bisect_rate
from servetwin.sim.records.metrics import SLO
from servetwin.sim.step_times.profile import Profile, load_profile
from servetwin.workloads.errors import TraceError
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import limit
from tests.support.command import SERVER, refused, servetwin, with_server
from tests.support.effort import REDUCTION, WIDENING
from tests.support.paths import SAMPLE, SHEET_PROFILE
from tests.support.queue_cases.case import ONE_SLOT, poisson_arrivals_s, trace

pytestmark = pytest.mark.slow

MEASURED = load_profile("base-cpu")
COMPUTED = load_profile(SHEET_PROFILE)
SLO_TEXT = "ttft=500ms,tpot=80ms"


def one_second() -> Scenario:
    """One slot; every request of one token takes a step of a second."""
    facts: dict[str, Any] = json.loads(COMPUTED.model_dump_json(by_alias=True))
    paged = {"coefficients": {"constant": 1.0}}
    facts.update(name="one-second", api={}, layouts={"contiguous": paged, "paged": paged})
    return Scenario(ONE_SLOT, Profile.model_validate(facts))


def requests(arrivals_s: Any) -> Trace:
    return Trace(tuple(trace(arrivals_s)), "made")


@given(
    threshold=st.floats(1e-2, 1e3),
    rungs=st.lists(st.floats(1e-2, 1e2), min_size=1, max_size=6, unique=True).map(sorted),
    precision=st.floats(1e-3, 0.5),
)
def test_a_threshold_is_found_within_the_precision(
    threshold: float, rungs: list[float], precision: float
) -> None:
    found = bisect_rate(lambda rate: rate <= threshold, rungs, precision)
    if rungs[-1] <= threshold:
        assert found == (rungs[-1], None)
    else:
        holds_per_s, fails_per_s = found
        assert fails_per_s is not None
        assert holds_per_s <= threshold < fails_per_s
        assert fails_per_s <= holds_per_s * (1 + precision)


def test_what_holds_nowhere_is_zero_and_what_holds_again_does_not_count() -> None:
    assert bisect_rate(lambda _: False, [1.0, 2.0], 0.01)[0] == 0
    holds_per_s, _ = bisect_rate(lambda rate: rate < 1.5 or rate > 3, [1, 2, 4], 0.01)
    assert holds_per_s == pytest.approx(1.5, rel=0.01)


def md1_wait_probability(rate_per_s: float, wait_s: float) -> float:
    """P(wait <= t) where every service takes 1 s (Erlang 1909)."""
    terms = (
        (rate_per_s * (k - wait_s)) ** k / factorial(k) * exp(-rate_per_s * (k - wait_s))
        for k in range(floor(wait_s) + 1)
    )
    return (1 - rate_per_s) * sum(terms)


def test_the_formula_of_the_waits_has_the_mean_of_pollaczek_and_khinchine() -> None:
    grid = np.linspace(0, 30, 30_001)
    beyond = [1 - md1_wait_probability(0.5, t) for t in grid]
    assert trapezoid(beyond, grid) == pytest.approx(0.5 / (2 * 0.5), abs=1e-3)


def test_md1_has_the_capacity_that_its_waits_allow() -> None:
    """Waits within 1.5 s for 90 % of the requests; TTFT is the wait and a second of service."""
    exact = brentq(lambda rate: md1_wait_probability(rate, 1.5) - 0.9, 0.01, 0.99)
    target = SLOTarget(SLO(ttft_s=2.5), 0.9)
    found = [
        find_capacity(
            requests(poisson_arrivals_s(np.random.default_rng([5, draw]), 1.0, 1500 // REDUCTION)),
            one_second(),
            target,
            precision=0.003,
            replications=Replications(0),
        )
        for draw in range(10)
    ]
    rates = np.array([one.rate_per_s.value for one in found])
    half_width = student.ppf(0.9995, 9) * rates.std(ddof=1) / np.sqrt(10)
    assert abs(rates.mean() - exact) < half_width < WIDENING * 0.15 * exact
    assert {one.limit for one in found} == {"ttft_s"}
    assert found[0].saturation_per_s.value == pytest.approx(1.0)


def md1_capacity(seed: int, requests_each: int, replications: int) -> Capacity:
    trace = requests(poisson_arrivals_s(np.random.default_rng(seed), 1.0, requests_each))
    target = SLOTarget(SLO(ttft_s=6.0), 0.95)
    return find_capacity(trace, one_second(), target, replications=Replications(replications))


def test_the_interval_has_the_capacity_of_md1_and_is_no_wider_than_twice_the_true_spread() -> None:
    """Twelve traces; the true spread of what such traces have is that of forty."""
    exact = brentq(lambda rate: md1_wait_probability(rate, 5.0) - 0.95, 0.01, 0.99)
    found = [md1_capacity(seed, 300, 10).rate_per_s for seed in range(12)]
    assert all(one.low <= exact <= one.high for one in found)
    halves = [log(one.high / one.low) / 2 for one in found]
    more = [md1_capacity(seed, 300, 0).rate_per_s for seed in range(12, 40)]
    true_half = 1.96 * np.std([log(one.value) for one in (*found, *more)], ddof=1)
    assert true_half < np.mean(halves) < 2 * true_half


def test_without_replications_there_is_no_interval() -> None:
    alone = md1_capacity(1, 60, 0)
    assert (alone.replications, alone.rate_per_s.low) == (0, alone.rate_per_s.high)
    assert alone.rate_per_s.value == md1_capacity(1, 60, 10).rate_per_s.value


def test_an_interval_is_about_the_value_even_if_all_draws_lie_below() -> None:
    found = containing(2.0, [1.0] * 400)
    assert (found.low, found.high) == pytest.approx((2 * 2**-2.05, 2 * 2**2.05), rel=0.02)
    assert containing(2.0, [1.0, 4.0]).low < containing(2.0, [1.0, 4.0] * 5).low < 0.5
    assert containing(2.0, [1.0]) == containing(2.0, []) == Interval(2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("scenario", "most_runs"),
    [(one_second(), 10 * 3), (Scenario(MEASURED.policy_config(), MEASURED), 10 * 4)],
    ids=["traffic", "traffic and engine"],
)
def test_a_replication_takes_few_simulations(
    scenario: Scenario, most_runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an engine that is drawn, ten searches by bisection took about 80."""
    runs = []

    def counted(*given: Any, **named: Any) -> Any:
        runs.append(given)
        return replicate(*given, **named)

    monkeypatch.setattr(capacity, "replicate", counted)
    trace = requests(poisson_arrivals_s(np.random.default_rng(2), 1.0, 200))
    find_capacity(trace, scenario, SLOTarget(SLO(ttft_s=6.0), 0.95), replications=Replications(10))
    assert 10 <= len(runs) <= most_runs


def test_equal_gaps_wait_for_nobody_up_to_saturation() -> None:
    found = find_capacity(requests(np.arange(100.0)), one_second(), SLOTarget(SLO(ttft_s=1.5)))
    assert (found.limit, found.missed, found.replications) == ("saturation", None, 20)
    assert found.rate_per_s.low == pytest.approx(found.rate_per_s.high)
    assert found.rate_per_s.value == found.saturation_per_s.value == pytest.approx(1.0)


def test_what_a_lonely_request_misses_has_no_capacity() -> None:
    found = find_capacity(requests(np.arange(100.0)), one_second(), SLOTarget(SLO(ttft_s=0.9)))
    assert found.rate_per_s.value == 0
    assert (found.limit, found.replications) == ("ttft_s", 0)
    assert found.missed is not None
    assert found.missed.shares == {"all": 0.0, "ttft_s": 0.0}


def test_replicas_share_the_rate_and_no_delay_is_left_at_saturation() -> None:
    one, scenario = one_second(), one_second().policies
    two = Scenario(scenario, one.profile, ClusterConfig(replicas=2))
    found = find_capacity(requests(np.arange(100.0)), two, SLOTarget(SLO(ttft_s=1.5)))
    assert found.rate_per_s.value / 2 == pytest.approx(1.0, rel=0.02)
    assert saturation_rate_per_s(
        requests(np.arange(100.0)), ONE_SLOT, one.profile
    ) == pytest.approx(1.0)


def sampled(replications: Replications) -> Capacity:
    scenario = Scenario(MEASURED.policy_config(), MEASURED)
    target = SLOTarget(SLO(ttft_s=0.5, tpot_s=0.08), 0.95)
    trace = limit(sample_trace(), 240 // REDUCTION)
    return find_capacity(trace, scenario, target, seed=3, replications=replications)


def test_an_interval_is_the_same_on_one_process_and_on_two() -> None:
    done: list[int] = []
    alone = sampled(Replications(10, on_replication=done.append))
    assert alone.rate_per_s.low <= alone.rate_per_s.value <= alone.rate_per_s.high
    assert alone.rate_per_s.low < alone.rate_per_s.high
    assert alone.rate_per_s.high <= alone.saturation_per_s.high
    assert alone.rate_per_s.value < alone.saturation_per_s.low
    assert done == list(range(1, 11))
    spread = sampled(Replications(10, processes=2))
    assert spread.rate_per_s == alone.rate_per_s
    assert spread.saturation_per_s == alone.saturation_per_s


@pytest.mark.parametrize(
    ("arrivals_s", "message"),
    [(np.arange(5.0), "too few"), (np.zeros(50), "all arrive at once")],
)
def test_traces_without_a_capacity_say_why(arrivals_s: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        find_capacity(requests(arrivals_s), one_second(), SLOTarget(SLO(ttft_s=1.5)))


def test_the_command_says_capacity_limit_and_saturation() -> None:
    done = servetwin("capacity", SAMPLE, *SERVER, "--slo", SLO_TEXT, "--replications", 2)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 100
    starts = [line.split()[0] for line in lines if line]
    assert {"saturation", "limited", "resource"} <= set(starts)
    assert "Only 2 of 240 requests may miss" in done.out
    assert "requests/s (95 %)" in done.out


def test_json_has_rates_limits_and_every_rate_that_was_tried() -> None:
    done = servetwin(
        "capacity", SAMPLE, "--slo", SLO_TEXT, "--attainment", 0.9, "--json",
        "--profile", SHEET_PROFILE, "--replicas", 2,
    )  # fmt: skip
    found = json.loads(done.out)
    (answer,) = found["candidates"]
    assert answer["count"] == answer["capacity"]["rate_per_s"]["value"]
    assert answer["draws"] == 10
    rates = [tried["rate_per_s"] for tried in answer["capacity"]["tried"]]
    assert rates == sorted(rates)
    assert found["slo"] == {
        "ttft_s": 0.5,
        "tpot_s": 0.08,
        "e2e_s": None,
        "task_s": None,
        "ttfo_s": None,
        "attainment": 0.9,
    }
    assert answer["devices"] == {"h100": 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--slo", "ttft=500"], "not a positive time with its unit"),
        (["--slo", "itl=5ms"], "unknown limit 'itl'"),
        (["--slo", SLO_TEXT, "--attainment", "0"], "--attainment: 0 is no share"),
        (["--slo", SLO_TEXT, "--attainment", "99"], "should be less than or equal to 1"),
        (["--slo", SLO_TEXT, "--limit", "4"], "4 requests are too few"),
        (["--slo", SLO_TEXT, "--batching", "statik"], "statik"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str) -> None:
    assert message in refused("capacity", SAMPLE, *with_server(*options))


def test_the_saturation_rate_has_the_interval_of_the_profile() -> None:
    profile, sample = load_profile("base-cpu"), limit(sample_trace(), 60)
    config = profile.policy_config()
    found = saturation_interval(sample, config, profile, seed=1)
    fitted = saturation_rate_per_s(sample, config, profile)
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(fitted, rel=0.05)
    slow = saturation_interval(sample, config, profile.scaled(2.0), seed=1)
    assert slow.value == pytest.approx(found.value / 2, rel=0.01)
