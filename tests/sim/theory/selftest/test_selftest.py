"""The simulator, set up as servers that theory knows, meets their exact figures."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student

from policies.config import PolicyConfig
from policies.registry import build_scheduler
from sim.core.simulate import simulate
from sim.records.metrics import summarize
from sim.step_times.step_time import LinearStepTime
from sim.theory import littles_law_gap, md1_wait_s, mg1_wait_s, number_integral_s
from sim.theory.selftest.case import (
    ONE_SLOT,
    ROW_COST,
    SelftestCase,
    poisson_arrivals_s,
    replay,
    server,
    trace,
)
from sim.theory.selftest.judge import (
    CASES,
    FigureCheck,
    UnknownCase,
    cases_named,
    half_width,
    judge,
    judge_named,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_scenario_meets_theory(name: str) -> None:
    """Inside a 99.9 % interval over replications that is itself narrow enough to have power."""
    outcomes = judge_named(name)
    assert outcomes
    for outcome in outcomes:
        assert outcome.holds, outcome


@pytest.mark.parametrize("scenario", CASES.values(), ids=CASES)
def test_intervals_are_narrow_and_stand_on_ten_replications_or_nothing_is_random(
    scenario: SelftestCase,
) -> None:
    assert scenario.precision <= 0.08
    assert scenario.replications == 1 or scenario.replications >= 10


@pytest.mark.parametrize(
    ("utilisation", "tokens", "exact_s"),
    [(0.8, [10], md1_wait_s(0.8, 1.0)), (0.7, [2, 18], mg1_wait_s(0.7, 1.0, 0.8))],
    ids=["M/D/1 at 80 %", "M/G/1 at 70 %"],
)
def test_busier_slots_wait_as_pollaczek_and_khinchine_say(
    utilisation: float, tokens: list[int], exact_s: float
) -> None:
    """A service of 10 tokens is a second; the interval is within 12 %."""

    def mean_wait_s(rng: np.random.Generator) -> dict[str, float]:
        arrivals, lengths = rng.spawn(2)
        arrivals_s = poisson_arrivals_s(arrivals, utilisation, 4000)
        requests = trace(arrivals_s, outputs=lengths.choice(tokens, 4000))
        run = replay(ONE_SLOT, {"constant": 0.1}, requests)
        return {"mean wait": float(run.requests["queue_s"][500:].mean())}

    busy = SelftestCase("busy", "", {"mean wait": exact_s}, mean_wait_s, 36, precision=0.12)
    assert all(outcome.holds for outcome in judge(busy))


@settings(max_examples=20)
@given(st.floats(0.05, 3), st.integers(0, 2**32))
def test_waits_of_one_slot_are_lindleys_request_by_request(load: float, seed: int) -> None:
    """The wait of the next: max(0, wait + service - gap) (Lindley 1952)."""
    rng = np.random.default_rng(seed)
    arrivals_s = poisson_arrivals_s(rng, load, 200)
    rows = rng.integers(1, 2_000_000, 200)
    run = replay(ONE_SLOT, ROW_COST, trace(arrivals_s, rows))
    expected_s = [0.0]
    for service_s, gap_s in zip(rows[:-1] / 1e6, np.diff(arrivals_s), strict=True):
        expected_s.append(max(0.0, expected_s[-1] + service_s - gap_s))
    assert run.requests["queue_s"].to_numpy() == pytest.approx(np.array(expected_s), abs=1e-6)


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(0, 2**32))
def test_slots_without_a_queue_refuse_whom_they_find_no_room_for(slots: int, seed: int) -> None:
    """Arrivals far from the steps' ends: each is refused exactly when all slots are held."""
    rng = np.random.default_rng(seed)
    arrivals_s = np.cumsum(rng.integers(1, 8, 100)) - 0.5
    tokens = rng.integers(1, 30, 100)
    config = server(max_seqs=slots, queue_limit=0)
    run = replay(config, {"constant": 1.0}, trace(arrivals_s, outputs=tokens))
    ends_s: list[float] = []
    for arrival_s, service_s, status in zip(
        arrivals_s, tokens, run.requests["status"], strict=True
    ):
        ends_s = [end_s for end_s in ends_s if end_s > np.ceil(arrival_s)]
        assert (status == "finished") == (len(ends_s) < slots)
        if status == "finished":
            ends_s.append(np.ceil(arrival_s) + service_s)


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


def test_slots_and_memory_for_as_many_refuse_the_same_requests() -> None:
    """Both scenarios draw the same requests, so the very figures agree."""
    by_slots, by_memory = (
        scenario.measure(np.random.default_rng(3))
        for scenario in cases_named(["erlang-slots", "erlang-memory"])
    )
    assert by_slots == by_memory


def drawn(mean: float, deviation: float, exact: float) -> FigureCheck:
    """The outcome of a scenario that draws normal numbers."""

    def measure(rng: np.random.Generator) -> dict[str, float]:
        return {"value": float(rng.normal(mean, deviation))}

    (outcome,) = judge(SelftestCase("drawn", "", {"value": exact}, measure))
    return outcome


@pytest.mark.parametrize(
    ("mean", "deviation", "verdict"),
    [(1.0, 0.01, "holds"), (1.05, 0.01, "FAILED"), (0.95, 0.01, "FAILED"), (1.0, 1.0, "too wide")],
)
def test_a_verdict_needs_a_narrow_interval_around_the_exact_value(
    mean: float, deviation: float, verdict: str
) -> None:
    outcome = drawn(mean, deviation, exact=1.0)
    assert (outcome.verdict, outcome.holds) == (verdict, verdict == "holds")


def test_intervals_cover_as_often_as_they_say() -> None:
    """20,000 intervals of ten normal values: the misses are binomial, here within 4 s.e."""
    samples = norm.rvs(size=(20_000, 10), random_state=1)
    misses = np.mean([abs(values.mean()) > half_width(values) for values in samples])
    assert abs(misses - 0.001) < 4 * np.sqrt(0.001 / 20_000)
    low, high = student.interval(0.999, 9, samples[0].mean(), samples[0].std(ddof=1) / np.sqrt(10))
    assert half_width(samples[0]) == pytest.approx((high - low) / 2)


@pytest.mark.parametrize(("error", "holds"), [(0.0, True), (1e-12, True), (1e-8, False)])
def test_an_identity_holds_to_nine_digits(error: float, holds: bool) -> None:
    (identity,) = cases_named(["static-makespan"])
    off = {figure: value * (1 + error) for figure, value in identity.exact.items()}
    assert [outcome.holds for outcome in judge(replace(identity, exact=off))] == [holds]


def test_a_wrong_theory_is_found() -> None:
    (scenario,) = cases_named(["batch-service"])
    wrong = {figure: 1.06 * value for figure, value in scenario.exact.items()}
    assert [o.verdict for o in judge(replace(scenario, exact=wrong))] == ["FAILED", "FAILED"]


def test_an_unknown_scenario_is_named_with_a_near_one() -> None:
    with pytest.raises(UnknownCase, match="no scenario 'mm2'; did you mean 'm"):
        cases_named(["mm2"])
