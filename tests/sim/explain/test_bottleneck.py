"""What presses on a server: counted by hand on a few steps, and seen in simulations that lack one
thing each."""

import pandas as pd
import pytest

from servetwin.app.scenario.files.scenario_file import parse_scenario
from servetwin.sim.core.recorder import STEP_COLUMNS
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.explain.bottleneck import Bottleneck, find_bottleneck
from servetwin.sim.records.run import Run

POLICIES = {"batching": "continuous", "max_seqs": 4}


def run_of(arrivals_s: list[float], steps: list[dict[str, float]]) -> Run:
    requests = pd.DataFrame({"scheduled_s": arrivals_s, "prompt_tokens": 100})
    frame = pd.DataFrame(steps, columns=list(STEP_COLUMNS)).fillna(0)
    return Run("simulation", requests, frame, {})


def step(start_s: float, end_s: float, waiting: int = 0, **rest: float) -> dict[str, float]:
    return {"start_s": start_s, "end_s": end_s, "waiting": waiting, "free_kv_tokens": 400, **rest}


def test_waiting_is_weighed_by_requests_and_seconds() -> None:
    steps = [
        step(0, 2, waiting=1, running=4),  # 2 request-seconds for a place
        step(2, 3, waiting=3, running=2, prefill_chunks=1),  # 3 behind prompts
        step(3, 4, waiting=5, running=3, free_kv_tokens=10),  # 5 for memory
        step(6, 8),
    ]
    found = find_bottleneck(run_of([0.0, 2.0, 4.0], steps), POLICIES, 1000)
    assert found.cause == "memory"
    assert found.cause_share == pytest.approx(5 / 10)
    assert found.waited_s == pytest.approx(10 / 3)
    assert found.arrivals_per_s == pytest.approx(0.5)
    assert found.busy_share == pytest.approx(6 / 8)
    assert found.running_peak == 4
    assert found.kv_peak_share == pytest.approx(0.99)


def test_growth_is_of_the_last_quarter_over_the_second() -> None:
    line = [step(t, t + 1, waiting=2 * t) for t in range(100)]  # two more per second
    arrivals_s = [100 * i / 999 for i in range(1000)]
    found = find_bottleneck(run_of(arrivals_s, line), POLICIES, None)
    assert found.growth_per_s == pytest.approx(2.0)
    assert found.served_per_s == pytest.approx(999 / 100 - 2)
    assert found.overloaded
    assert found.kv_peak_share is None


def test_a_queue_that_ends_as_it_began_does_not_grow() -> None:
    line = [step(t, t + 1, waiting=30 + 3 * (t % 2)) for t in range(100)]
    assert not find_bottleneck(
        run_of([t / 10 for t in range(1000)], line), POLICIES, None
    ).overloaded


def test_nothing_ran_nothing_presses() -> None:
    found = find_bottleneck(run_of([0.0, 1.0], []), POLICIES, 1000)
    assert (found.cause, found.waited_s, found.busy_share) == (None, 0.0, 0.0)


def simulated(text: str) -> Bottleneck:
    file = parse_scenario(text, "test")
    trace = file.workload.trace(0)
    scenario = file.build(trace)
    policies = scenario.policies
    return find_bottleneck(run_once(trace, scenario), policies.as_dict(), policies.kv_tokens)


@pytest.mark.parametrize(
    ("policies", "cause"),
    [
        ("policies: {max_seqs: 4}", "places"),
        ("policies: {kv_tokens: 8192}", "memory"),
        ("policies: {batching: static, max_seqs: 8}", "batch"),
    ],
)
def test_what_is_short_is_named(policies: str, cause: str) -> None:
    found = simulated(f"workload: {{requests: 400, rate_per_s: 20}}\n{policies}")
    assert found.overloaded
    assert found.cause == cause
    assert found.cause_share > 0.8
    assert found.served_per_s < 0.9 * found.arrivals_per_s


def test_prompts_are_named_where_they_fill_the_steps() -> None:
    found = simulated(
        "workload: {requests: 200, rate_per_s: 20, prompt_tokens: 6000, prompt_cv: 0.2, "
        "output_tokens: 10}\npolicies: {kv_tokens: 10000000}"
    )
    assert (found.cause, found.overloaded) == ("prompts", True)


def test_a_server_with_room_is_not_overloaded() -> None:
    found = simulated("workload: {requests: 400, rate_per_s: 5}")
    assert not found.overloaded
    assert found.waited_s < 0.01
