"""The budget of a sweep: how it is read, and when it is spent."""

import pytest

from servetwin.loadtest.sweep.stopping_rule import SweepBudget, parse_budget
from servetwin.workloads.errors import LoadTestError


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
