"""How a sweep goes on: repeated levels, its budget, and what an interruption leaves."""

from itertools import count

import pytest

from servetwin.loadtest.sweep.level import Level, LevelPlan
from servetwin.loadtest.sweep.run_sweep import (
    INTERRUPTED,
    MOST_ATTEMPTS,
    SweepBudget,
    parse_budget,
    run_sweep,
)
from servetwin.loadtest.sweep.sweep import Sweep
from servetwin.workloads.errors import EndedEarly, LoadTestError
from tests.support.swept_levels import level_of, settings, swept

LATE = ("schedule lag p99 30 ms, over 20 ms",)


def test_a_level_whose_client_was_late_is_sent_again() -> None:
    sent: list[tuple[int, int]] = []

    def measure(plan: LevelPlan, attempt: int) -> Level:
        sent.append((plan.number, attempt))
        return level_of(plan, attempt, LATE if plan.number == 3 and attempt < 3 else ())

    sweep = run_sweep(Sweep(settings("rates", levels=2)), SweepBudget(), measure, lambda _: None)
    assert sent == [(1, 1), (2, 1), (3, 1), (3, 2), (3, 3), (4, 1)]
    assert [level.attempts for level in sweep.levels] == [1, 1, 3, 1]
    assert all(level.counts for level in sweep.levels)
    assert not sweep.early


def test_a_client_that_never_keeps_up_ends_the_sweep() -> None:
    def measure(plan: LevelPlan, attempt: int) -> Level:
        return level_of(plan, attempt, LATE if plan.number == 3 else ())

    sweep = run_sweep(Sweep(settings()), SweepBudget(), measure, lambda _: None)
    assert [level.counts for level in sweep.levels] == [True, True, False]
    assert sweep.levels[-1].attempts == MOST_ATTEMPTS
    assert sweep.early
    assert "the client is the limit: 5/s" in (sweep.ended or "")
    assert sweep.rated == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EndedEarly("the server is gone")])
def test_an_interruption_keeps_the_finished_levels(error: BaseException) -> None:
    kept: list[Sweep] = []

    def measure(plan: LevelPlan, attempt: int) -> Level:
        if plan.number == 4:
            raise error
        return level_of(plan, attempt)

    sweep = run_sweep(Sweep(settings()), SweepBudget(), measure, kept.append)
    assert [len(state.levels) for state in kept] == [1, 2, 3]
    assert sweep.levels == kept[-1].levels
    assert (sweep.early, sweep.ended) == (True, str(error) or INTERRUPTED)


def test_the_budget_counts_load_tests_and_leaves_what_is_known() -> None:
    assert [len(swept(load_tests=most).levels) for most in (1, 5, 99)] == [1, 5, 8]
    sweep = swept(load_tests=5)
    assert (sweep.early, sweep.ended) == (False, "the budget of 5 load tests is spent")


def test_a_level_that_would_end_after_the_time_is_not_begun() -> None:
    """Each look at the clock is a second later; 400 requests at 5/s take 80 s."""
    ticks = count()
    budget = SweepBudget(time_s=80.0)
    sweep = run_sweep(Sweep(settings()), budget, level_of, lambda _: None, lambda: next(ticks))
    assert len(sweep.levels) == 2
    assert "80 s" in (sweep.ended or "")


@pytest.mark.parametrize(
    ("text", "load_tests", "time_s"),
    [("24", 24, float("inf")), ("900s", float("inf"), 900), ("1.5h", float("inf"), 5400)],
)
def test_a_number_is_of_load_tests_and_a_unit_makes_it_time(
    text: str, load_tests: float, time_s: float
) -> None:
    assert parse_budget(text) == SweepBudget(load_tests, time_s)


@pytest.mark.parametrize(
    "text", ["", "0", "-3", "2.5", "0s", "ten", "1e9", "3 days", "9" * 400 + "s"]
)
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(LoadTestError, match=r"--sweep-budget .* 24 "):
        parse_budget(text)


def test_it_is_spent_after_its_load_tests_or_when_the_next_would_end_late() -> None:
    assert SweepBudget(load_tests=3).spent(2, 1e9, 1e9) is None
    assert SweepBudget(load_tests=3).spent(3, 0, 0) == "the budget of 3 load tests is spent"
    assert SweepBudget(time_s=60).spent(99, 30, 30) is None
    assert "60 s" in str(SweepBudget(time_s=60).spent(0, 31, 30))
