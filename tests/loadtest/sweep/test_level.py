"""What a level tells of its load test."""

from dataclasses import asdict

import pytest
from pydantic import TypeAdapter

from servetwin.loadtest.sweep.level import COMPLETED, SHARE, Level, LevelPlan, measured_level
from servetwin.sim.records.metrics import SLO
from tests.support.mock_load import load, trace_of

EVERY_20_MS = trace_of(*(0.02 * number for number in range(40)))
SLO_OF_MOCK = SLO(ttft_s=0.5)


def test_figures_attainment_and_answers_at_once_of_a_load_test() -> None:
    run = load(EVERY_20_MS)
    level = measured_level(LevelPlan(3, "rate", 50.0), run, SLO_OF_MOCK, predicted=run)
    assert (level.requests, level.failed) == (40, 0)
    assert level.attainment
    assert level.attainment.share == level.figures[SHARE] == run.summary(SLO_OF_MOCK)[SHARE]
    assert level.figures == level.predicted
    assert (level.figures[COMPLETED] or 0) == pytest.approx(50, rel=0.3)
    assert 0.5 < (level.answered_at_once or 0) < 3
    assert TypeAdapter(Level).validate_python(asdict(level)) == level


def test_a_late_client_does_not_count_but_at_once_all_are_late() -> None:
    run = load(EVERY_20_MS)
    run.extra["delivered"]["limited_by"] = ["schedule lag p99 30 ms, over 20 ms"]
    assert not measured_level(LevelPlan(3, "rate", 50.0), run, None).counts
    assert measured_level(LevelPlan(2, "throughput"), run, None).counts
    run.extra["delivered"]["lost_processes"] = 1
    died = measured_level(LevelPlan(2, "throughput"), run, None)
    assert died.limited_by == ("1 processes of the load test died",)


def test_a_level_in_which_nearly_nothing_finished_has_no_rate() -> None:
    run = load(trace_of(*(0.01 * number for number in range(12))), "status:code=500")
    level = measured_level(LevelPlan(1, "synchronous", users=1), run, SLO_OF_MOCK)
    assert (level.failed, level.figures[COMPLETED], level.answered_at_once) == (12, None, None)
    assert level.attainment
    assert level.attainment.share == 0


def test_a_load_in_words_and_its_folder() -> None:
    plans = [
        LevelPlan(1, "synchronous", users=1), LevelPlan(2, "throughput"),
        LevelPlan(3, "rate", 2.34567), LevelPlan(12, "users", users=7),
    ]  # fmt: skip
    assert [plan.load for plan in plans] == ["1 user", "all at once", "2.346/s", "7 users"]
    assert [plan.folder for plan in plans] == [
        "01-synchronous",
        "02-throughput",
        "03-rate",
        "12-users",
    ]
