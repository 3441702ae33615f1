"""The load of each level of a sweep."""

from pathlib import Path

import pytest

from servetwin.app.scenario.options.load import GENERATED_REQUESTS, LevelSweepOptions, LoadChoice
from servetwin.app.tasks.load_sweep import LEAST_PREDICTED, SYNCHRONOUS_REQUESTS, LevelLoad
from servetwin.loadtest.sweep.attainment import least_requests
from servetwin.loadtest.sweep.level import LevelPlan
from servetwin.workloads.readers.native import write_trace
from tests.support.mock_load import trace_of

SLOW, FAST = LevelPlan(3, "rate", 2.0), LevelPlan(4, "rate", 4.0)
USERS = LevelPlan(5, "users", users=3)
ALONE, AT_ONCE = LevelPlan(1, "synchronous", users=1), LevelPlan(2, "throughput")


def generated(**more: object) -> LevelLoad:
    return LevelLoad(LoadChoice(sweep=LevelSweepOptions("slo"), **more))  # type: ignore[arg-type]


@pytest.fixture
def replayed(tmp_path: Path) -> LevelLoad:
    path = tmp_path / "trace.jsonl"
    write_trace(trace_of(*(0.5 * number for number in range(40))), path)
    return LevelLoad(LoadChoice(path, sweep=LevelSweepOptions("rates")))


def test_a_generated_level_has_its_rate_and_requests_of_its_own() -> None:
    slow, fast = (generated().trace(plan) for plan in (SLOW, FAST))
    assert len(slow) == len(fast) == GENERATED_REQUESTS
    assert slow.rate_per_s == pytest.approx(2.0, rel=0.2)
    assert fast.rate_per_s == pytest.approx(4.0, rel=0.2)
    lengths = [[request.prompt_tokens for request in trace] for trace in (slow, fast)]
    assert lengths[0] != lengths[1]
    assert generated().trace(SLOW) == slow
    assert generated(seed=1).trace(SLOW).requests != slow.requests


def test_the_default_size_of_a_level_can_prove_the_default_share() -> None:
    assert least_requests(0.99) <= GENERATED_REQUESTS


def test_a_trace_keeps_its_requests_and_scales_its_gaps(replayed: LevelLoad) -> None:
    slow, fast = (replayed.trace(plan) for plan in (SLOW, FAST))
    assert [r.request_id for r in slow] == [r.request_id for r in fast]
    assert [r.arrival_s / 2 for r in slow] == pytest.approx([r.arrival_s for r in fast])
    assert replayed.predicted_trace().requests[-1].arrival_s == 19.5


def test_the_ends_are_one_user_and_all_at_once(replayed: LevelLoad) -> None:
    for load in (replayed, generated()):
        alone, at_once = load.trace(ALONE), load.trace(AT_ONCE)
        assert len(alone) == SYNCHRONOUS_REQUESTS
        assert [r.parent_id for r in alone][1:] == [r.request_id for r in alone][:-1]
        assert {r.arrival_s for r in at_once} == {0.0}
        assert load.of(ALONE).options().concurrency == 1
        assert load.of(AT_ONCE).options().concurrency is None


def test_users_think_and_the_ends_do_not() -> None:
    sweep = LevelSweepOptions("users", requests=30)
    load = LevelLoad(LoadChoice(sweep=sweep, think_time="2", ramp_up_s=6.0, warm_up_s=1.0))
    users = load.trace(USERS)
    assert len(users) == 30
    assert {r.tenant for r in users} == {"user-1", "user-2", "user-3"}
    assert {r.delay_s for r in users} == {2.0}
    assert {r.delay_s for r in load.trace(ALONE)} == {0.0}
    assert [load.of(plan).warm_up_s for plan in (USERS, ALONE, AT_ONCE)] == [1.0, 0.0, 0.0]


def test_a_generated_knee_is_predicted_on_more_requests_than_a_level_has() -> None:
    assert len(generated().predicted_trace()) == LEAST_PREDICTED
