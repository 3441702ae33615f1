"""Which levels a sweep has, and what it keeps."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from servetwin.loadtest.sweep.level import COMPLETED, LevelPlan
from servetwin.loadtest.sweep.sweep import (
    ALL_LEVELS,
    MISSED_ALONE,
    NARROW,
    SWEEP,
    Sweep,
    is_sweep,
    load_sweep,
    rates_between,
    users_between,
)
from servetwin.sim.records.run import RunError
from servetwin.workloads.errors import EndedEarly
from tests.support.swept_levels import settings, swept, with_late_level


def test_the_ends_come_first_and_rates_lie_evenly_between() -> None:
    sweep = swept("rates", levels=3)
    kinds = [level.plan.kind for level in sweep.levels]
    assert kinds == ["synchronous", "throughput", "rate", "rate", "rate"]
    rates = [level.plan.rate_per_s for level in sweep.levels[2:]]
    assert rates == pytest.approx([3.25, 5.5, 7.75])
    assert sweep.ended == ALL_LEVELS


def test_users_go_up_to_the_answers_that_the_server_streams_at_once() -> None:
    sweep = swept("users", levels=4)
    assert [level.plan.users for level in sweep.levels] == [1, None, 3, 4, 6, 8]
    assert sweep.knee is None


def test_a_search_ends_at_the_knee_with_an_interval() -> None:
    sweep = swept(wanted=0.975)
    assert sweep.ended == NARROW
    assert sweep.knee
    assert sweep.knee.rate_per_s == pytest.approx(5.0, rel=0.02)
    assert sweep.knee.low_per_s
    assert sweep.knee.high_per_s
    assert sweep.knee.low_per_s < 5.0 < sweep.knee.high_per_s


def test_nothing_is_searched_where_requests_alone_surely_miss() -> None:
    alone, at_once = swept(load_tests=2).levels
    assert alone.attainment
    surely = replace(alone, attainment=replace(alone.attainment, share=0.9, high=0.94))
    assert Sweep(settings(wanted=0.95), (surely, at_once)).next_level() == MISSED_ALONE
    perhaps = replace(alone, attainment=replace(alone.attainment, share=0.9, high=0.96))
    assert Sweep(settings(wanted=0.95), (perhaps, at_once)).next_level() == LevelPlan(
        3, "rate", 5.0
    )


def test_levels_whose_client_was_late_say_nothing_of_the_knee() -> None:
    sweep = swept(load_tests=6)
    assert len(with_late_level(sweep).rated) == len(sweep.rated) - 1


def test_an_end_without_a_rate_ends_the_sweep() -> None:
    alone, at_once = swept(load_tests=2).levels
    unknown = replace(at_once, failed=395, figures={**at_once.figures, COMPLETED: None})
    with pytest.raises(EndedEarly, match=r"throughput end .* 5 of 400 .* at least 10"):
        Sweep(settings("rates"), (alone, unknown)).next_level()


@pytest.mark.parametrize("of", ["rates", "users", "slo"])
def test_a_sweep_is_the_same_from_json(of: str) -> None:
    sweep = swept(of)  # type: ignore[arg-type]
    assert Sweep.of_dict(json.loads(json.dumps(sweep.as_dict()))) == sweep


def test_rates_are_at_equal_distances_inside() -> None:
    assert rates_between(1.0, 5.0, 3) == pytest.approx([2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("most", "count", "users"),
    [(9.0, 4, [3, 5, 7, 9]), (3.2, 6, [2, 3]), (0.4, 2, [2]), (100.0, 1, [100])],
)
def test_users_are_whole_and_differ(most: float, count: int, users: list[int]) -> None:
    assert users_between(most, count) == users


def test_a_sweep_is_read_as_it_was_saved(tmp_path: Path) -> None:
    sweep = swept(load_tests=4)
    assert not is_sweep(tmp_path)
    sweep.save(tmp_path)
    assert is_sweep(tmp_path)
    assert load_sweep(tmp_path) == sweep


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"sweep": {"of": "slo"}}'])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / SWEEP).write_text(text)
    with pytest.raises(RunError, match=SWEEP):
        load_sweep(tmp_path)
