"""Which levels a sweep has, what it keeps, and how sure a share is."""

import json
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter
from scipy.stats import beta, binom, t

from servetwin.app.scenario.options.load import CLIMB_S, LevelSweepOptions
from servetwin.loadtest.sweep.attainment import (
    attainment,
    attainment_of,
    binomial_interval,
    effective_requests,
    least_requests,
)
from servetwin.loadtest.sweep.level import COMPLETED, SHARE, Level, LevelPlan, measured_level
from servetwin.loadtest.sweep.run_sweep import (
    INTERRUPTED,
    MOST_ATTEMPTS,
    SweepBudget,
    parse_budget,
    run_sweep,
)
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
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import RunError
from servetwin.workloads.errors import EndedEarly, LoadTestError
from tests.support.mock_load import load, trace_of
from tests.support.swept_levels import level_of, settings, swept, with_late_level


def test_the_ends_come_first_and_rates_lie_evenly_between() -> None:
    sweep = swept("rates", levels=3)
    kinds = [level.plan.kind for level in sweep.levels]
    assert kinds == ["synchronous", "throughput", "rate", "rate", "rate"]
    rates = [level.plan.rate_per_s for level in sweep.levels[2:]]
    assert rates == pytest.approx([3.25, 5.5, 7.75])
    assert sweep.ended == ALL_LEVELS


def test_a_search_without_an_slo_takes_its_limits_from_requests_that_come_alone() -> None:
    bare = replace(settings(), slo=None)
    assert Sweep(bare).limits is None
    seen: list[SLO | None] = []

    def measure(plan: LevelPlan, attempt: int, slo: SLO | None) -> Level:
        seen.append(slo)
        return level_of(plan, attempt, slo)

    sweep = run_sweep(Sweep(bare), SweepBudget(), measure, lambda _: None)
    assert seen[0] is None
    assert {*seen[1:]} == {sweep.limits}
    assert sweep.limits == SLO(ttft_s=0.6, tpot_s=0.5, e2e_s=0.5)
    assert sweep.knee is not None
    assert Sweep.of_dict(json.loads(json.dumps(sweep.as_dict()))).limits == sweep.limits
    whole = replace(sweep.levels[0], figures={**sweep.levels[0].figures, "ttft_s.p99": None})
    assert replace(sweep, levels=(whole,)).limits == SLO(tpot_s=0.5, e2e_s=0.5)
    assert Sweep(replace(bare, of="rates"), sweep.levels).limits is None


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


def test_a_climb_grows_until_a_rate_fails_and_no_level_lasts_longer_than_the_others() -> None:
    sweep = swept(wanted=0.975, level_s=20.0)
    rates = [level.plan.rate_per_s for level in sweep.levels]
    assert rates[:3] == [None, 3.0, 9.0]
    assert all(3.0 < rate < 9.0 for rate in rates[3:] if rate)
    assert sweep.ended == NARROW
    assert sweep.knee
    assert sweep.knee.rate_per_s == pytest.approx(5.0, rel=0.02)
    requests = [level.plan.requests for level in sweep.levels]
    assert requests[:3] == [10, 60, 180]
    assert [settings(level_s=20.0).requests_at(rate) for rate in (0.1, 2.0, 50.0)] == [20, 40, 400]
    assert settings().requests_at(2.0) is None


def test_a_climb_on_a_slow_server_fits_into_its_budget() -> None:
    """Three requests a second, two seconds alone: sent and drained within three minutes."""
    elapsed_s = [0.0]

    def measure(plan: LevelPlan, attempt: int, slo: SLO | None) -> Level:
        rate = min(plan.rate_per_s or 0.5, 3.0)
        elapsed_s[0] += (plan.requests or 400) / rate
        level = level_of(plan, attempt, slo)
        share = 1.0 if (plan.rate_per_s or 0.5) < 2.4 else 0.5
        assert level.attainment
        near = replace(level.attainment, share=share, low=share - 0.05, high=min(1.0, share + 0.05))
        return replace(level, figures={**level.figures, COMPLETED: rate}, attainment=near)

    budget = parse_budget(LevelSweepOptions().climbing().budget or "")
    bare = Sweep(replace(settings(wanted=0.99, precision=0.05, level_s=CLIMB_S), slo=None))
    sweep = run_sweep(bare, budget, measure, lambda _: None, lambda: elapsed_s[0])
    assert elapsed_s[0] < 180
    assert sweep.knee
    assert sweep.knee.rate_per_s == pytest.approx(2.4, rel=0.15)


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


LATE = ("schedule lag p99 30 ms, over 20 ms",)


def test_a_level_whose_client_was_late_is_sent_again() -> None:
    sent: list[tuple[int, int]] = []

    def measure(plan: LevelPlan, attempt: int, slo: SLO | None) -> Level:
        sent.append((plan.number, attempt))
        return level_of(plan, attempt, slo, LATE if plan.number == 3 and attempt < 3 else ())

    sweep = run_sweep(Sweep(settings("rates", levels=2)), SweepBudget(), measure, lambda _: None)
    assert sent == [(1, 1), (2, 1), (3, 1), (3, 2), (3, 3), (4, 1)]
    assert [level.attempts for level in sweep.levels] == [1, 1, 3, 1]
    assert all(level.counts for level in sweep.levels)
    assert not sweep.early


def test_a_client_that_never_keeps_up_ends_the_sweep() -> None:
    def measure(plan: LevelPlan, attempt: int, slo: SLO | None) -> Level:
        return level_of(plan, attempt, slo, LATE if plan.number == 3 else ())

    sweep = run_sweep(Sweep(settings()), SweepBudget(), measure, lambda _: None)
    assert [level.counts for level in sweep.levels] == [True, True, False]
    assert sweep.levels[-1].attempts == MOST_ATTEMPTS
    assert sweep.early
    assert "the client is the limit: 5/s" in (sweep.ended or "")
    assert sweep.rated == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EndedEarly("the server is gone")])
def test_an_interruption_keeps_the_finished_levels(error: BaseException) -> None:
    kept: list[Sweep] = []

    def measure(plan: LevelPlan, attempt: int, slo: SLO | None) -> Level:
        if plan.number == 4:
            raise error
        return level_of(plan, attempt, slo)

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


LIMITS = SLO(ttft_s=0.5, tpot_s=0.05)


def requests_of(ttft_s: list[float], tpot_s: list[float], status: list[str]) -> pd.DataFrame:
    stamps = np.arange(len(ttft_s), dtype=float)
    return pd.DataFrame(
        {"scheduled_s": stamps, "ttft_s": ttft_s, "tpot_s": tpot_s, "e2e_s": 1.0, "status": status}
    )


def test_warm_up_and_cancelled_requests_do_not_count() -> None:
    frame = requests_of([0.1, 9.0, 9.0, 0.1], [0.01] * 4, ["finished"] * 4)
    frame["warm_up"] = [False, True, False, False]
    frame["error"] = [None, None, "cancelled_by_test", None]
    assert (attainment(frame, LIMITS).requests, attainment(frame, LIMITS).share) == (2, 1.0)


@pytest.mark.parametrize(("hits", "count"), [(0, 30), (29, 30), (30, 30), (190, 200)])
def test_the_interval_is_that_of_clopper_and_pearson(hits: int, count: int) -> None:
    low, high = binomial_interval(hits / count, count)
    assert low == pytest.approx(beta.ppf(0.025, hits, count - hits + 1) if hits else 0.0)
    assert high == pytest.approx(beta.ppf(0.975, hits + 1, count - hits) if hits < count else 1.0)


def test_the_interval_covers_a_share_of_independent_requests() -> None:
    for share in (0.5, 0.9, 0.99):
        chances = binom.pmf(np.arange(301), 300, share)
        inside = [low <= share <= high for low, high in map(_interval_of_300, range(301))]
        assert chances @ inside >= 0.95


def _interval_of_300(hits: int) -> tuple[float, float]:
    return binomial_interval(hits / 300, 300)


def test_independent_requests_count_nearly_in_full_and_copies_once() -> None:
    rng = np.random.default_rng(1)
    alone = rng.exponential(size=4000)
    copied = np.repeat(rng.exponential(size=400), 10)
    of_alone = np.mean([effective_requests(rng.permutation(alone)) for _ in range(20)])
    assert 2000 < of_alone <= 4000
    assert 200 < effective_requests(copied) < 800


def test_a_level_without_a_miss_still_hangs_together() -> None:
    """Its shares alone do not show it: they are all 1."""
    rng = np.random.default_rng(2)
    calm = np.repeat(rng.uniform(0.1, 0.9, size=20), 20)
    found = attainment_of(calm)
    assert found.share == 1.0
    assert found.effective < 60
    assert found.low < attainment_of(rng.permutation(calm)).low


def test_a_request_at_its_limit_keeps_it() -> None:
    assert attainment_of([1.0, 1.0, 1.0 + 1e-9, 0.5]).share == 0.75


def test_the_degrees_of_freedom_of_the_batches_take_their_part() -> None:
    """Requests that alternate do not hang together; 100 of them are 20 batches."""
    expected = 100 * (t.ppf(0.975, 99) / t.ppf(0.975, 19)) ** 2
    assert effective_requests(np.tile([0.1, 0.9], 50)) == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.9, 0.95, 0.99])
def test_the_least_requests_are_just_enough_to_prove_a_share(share: float) -> None:
    enough = least_requests(share)
    assert binomial_interval(1.0, enough)[0] >= share > binomial_interval(1.0, enough - 1)[0]


def test_nothing_is_known_of_no_requests() -> None:
    found = attainment_of([])
    assert (found.low, found.high) == (0.0, 1.0)


def test_requests_that_all_failed_surely_miss() -> None:
    assert attainment_of(np.full(60, np.inf)).high < 0.2
