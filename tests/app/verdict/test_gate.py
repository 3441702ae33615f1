import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from servetwin.app.verdict import gate as gates
from servetwin.app.verdict.claims import METRICS, Outcome
from servetwin.app.verdict.gate import (
    FINISHED,
    GATE_LIMITS,
    Gate,
    MetricChange,
    judge,
    metric_change,
    parse_limits,
)
from servetwin.app.verdict.intervals import RelativeVariance, variance_within
from servetwin.sim.records.metrics import derive
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.request import CANCELLED_BY_TEST
from tests.support.gate_runs import named, noisy_run

TPOT, TTFT = "tpot_s.mean", "ttft_s.mean"
THROUGHPUT = "output_throughput_tokens_per_s"
LIMITS = {TPOT: 0.05, TTFT: 0.10}


def gate(baselines: Sequence[Run], runs: Sequence[Run], **more: float) -> Gate:
    return judge(named("baseline", *baselines), named("run", *runs), {**LIMITS, **more})


def row_of(found: Gate, metric: str) -> MetricChange:
    return next(row for row in found.metrics if row.metric == metric)


@pytest.mark.parametrize(
    ("baselines", "runs", "outcome"),
    [
        ([noisy_run()], [noisy_run()], "holds"),
        ([noisy_run()], [noisy_run(seed=1)], "holds"),
        ([noisy_run()], [noisy_run(1.12, seed=1)], "refuted"),
        ([noisy_run()], [noisy_run(1.048, seed=1, noise=0.1)], "cannot tell"),
        ([noisy_run()], [noisy_run(0.7, seed=1)], "holds"),
        ([noisy_run(count=20)], [noisy_run(1.5, seed=1, count=20)], "cannot tell"),
        ([noisy_run(), noisy_run(seed=2)], [noisy_run(seed=1)], "holds"),
        ([noisy_run(), noisy_run(seed=2)], [noisy_run(1.12, seed=1)], "refuted"),
        ([noisy_run(), noisy_run(1.06, seed=2)], [noisy_run(1.5, seed=1)], "cannot tell"),
        ([noisy_run(), noisy_run(1.04, seed=2)], [noisy_run(1.02, seed=1)], "cannot tell"),
        ([noisy_run()], [noisy_run(seed=1), noisy_run(1.2, seed=2)], "cannot tell"),
        ([noisy_run()], [noisy_run(1.12, seed=1, limited_by=["CPU 97%"])], "cannot tell"),
        ([noisy_run()], [noisy_run(seed=1, count=100, interrupted=True)], "cannot tell"),
        ([noisy_run()], [noisy_run(seed=1, stopped="gone")], "cannot tell"),
        ([noisy_run()], [noisy_run(seed=1, failed=200)], "refuted"),
        ([noisy_run(failed=200)], [noisy_run(seed=1)], "cannot tell"),
    ],
    ids=[
        "the same run", "as fast", "slower", "noisy", "faster", "few requests", "A/B/A as fast",
        "A/B/A slower", "drift beyond the limit", "drift within the limit", "runs differ",
        "client limited", "interrupted", "stopped", "nothing finished", "no baseline finished",
    ],
)  # fmt: skip
def test_the_three_outcomes(baselines: list[Run], runs: list[Run], outcome: str) -> None:
    found = gate(baselines, runs)
    assert found.outcome == outcome
    assert found.as_dict()["holds"] is (outcome == "holds")
    assert (found.baselines, found.runs) == (len(baselines), len(runs))


@pytest.mark.parametrize(
    ("baselines", "run", "doubt"),
    [
        (
            [noisy_run(noise=0.0), noisy_run(1.2, noise=0.0)],
            noisy_run(),
            "the machine drifted: the baselines are 20.0% apart in tpot, more than its "
            "limit of 5.0%; let nothing else run there",
        ),
        ([noisy_run(count=29)], noisy_run(count=29), "29 counted requests are too few; send at"),
        ([noisy_run(failed=171)], noisy_run(), "29 finished requests are too few; send at least"),
        ([noisy_run()], noisy_run(stopped="x"), "run/1 was broken off before all was sent; "),
        ([noisy_run()], noisy_run(limited_by=["CPU 97%"]), "the client was limited in 1 of 2 load"),
    ],
)
def test_a_doubt_says_what_would_help(baselines: list[Run], run: Run, doubt: str) -> None:
    assert gate(baselines, [run]).doubts[0].startswith(doubt)


@pytest.mark.parametrize(
    ("low", "high", "sign", "outcome"),
    [
        (-0.1, 0.05, 1, "holds"),
        (-0.1, 0.051, 1, "cannot tell"),
        (0.05, 0.2, 1, "cannot tell"),
        (0.051, 0.2, 1, "refuted"),
        (-0.05, 0.1, -1, "holds"),
        (-0.2, -0.05, -1, "cannot tell"),
        (-0.2, -0.051, -1, "refuted"),
        (None, 0.0, 1, "cannot tell"),
    ],
)
def test_a_change_may_be_as_bad_as_its_limit(
    low: float | None, high: float, sign: int, outcome: Outcome
) -> None:
    assert gates._outcome(low, high, 0.05, sign) == outcome


def test_the_chance_between_runs_is_that_of_both_means() -> None:
    chance = gates._between([[1.0, 1.2], [2.0]])
    squares = (1.0 / 1.1 - 1) ** 2 + (1.2 / 1.1 - 1) ** 2
    assert chance is not None
    assert (chance.value, chance.freedom) == pytest.approx((squares * 1.5, 1))
    assert gates._between([[1.0], [2.0]]) is None


def test_the_chance_within_runs_has_the_freedom_of_the_smaller_side() -> None:
    base, run = noisy_run(), noisy_run(seed=1)
    pair = variance_within(TPOT, base.requests, run.requests)
    assert pair is not None
    expected = RelativeVariance(pair.value * (1 / 2 + 1 / 3) / 2, 2 * pair.freedom)
    chance = gates._within(TPOT, [base] * 2, [run] * 3)
    assert chance is not None
    assert (chance.value, chance.freedom) == pytest.approx((expected.value, expected.freedom))


def test_the_run_with_the_fewest_counted_requests_decides() -> None:
    short = noisy_run(failed=171)
    short.requests.loc[short.requests["status"] == "failed", "error"] = CANCELLED_BY_TEST
    doubts = gate([noisy_run()], [noisy_run(seed=1), short]).doubts
    assert doubts == ("29 counted requests are too few; send at least 30, better 200",)


@pytest.mark.parametrize(
    ("failed", "outcome"), [(0, "holds"), (2, "cannot tell"), (20, "refuted"), (200, "refuted")]
)
def test_failed_requests_are_no_speed(failed: int, outcome: str) -> None:
    """The server answers a part of the requests, twice as fast."""
    run = noisy_run(0.5, seed=1, failed=failed)
    found = gate([noisy_run()], [run], **{FINISHED: 0.01})
    assert row_of(found, FINISHED).outcome == outcome
    assert found.outcome == outcome


def test_clients_that_hang_up_on_purpose_do_not_count_as_failures() -> None:
    run = noisy_run(failed=50)
    run.requests.loc[run.requests["status"] == "failed", "error"] = CANCELLED_BY_TEST
    found = gate([noisy_run()], [run], **{FINISHED: 0.01})
    assert row_of(found, FINISHED).run == 1.0


def test_the_interval_of_a_share_is_that_of_a_binomial_one() -> None:
    row = row_of(judge(named("a", noisy_run()), named("b", noisy_run(failed=20))), FINISHED)
    error = math.sqrt(0.1 / 0.9 / 200)
    assert row.low == pytest.approx(0.9 * math.exp(-1.645 * error) - 1, abs=1e-3)


def test_the_share_of_finished_requests_is_of_all_runs() -> None:
    found = gate([noisy_run()], [noisy_run(), noisy_run(failed=200)], **{FINISHED: 0.01})
    assert row_of(found, FINISHED).run == 0.5
    assert row_of(found, FINISHED).outcome == "refuted"


def test_less_throughput_is_worse() -> None:
    limits = {THROUGHPUT: 0.03}
    fewer = noisy_run(per_s=10.0, noise=0.0)
    fewer.requests["output_tokens"] -= 1
    found = judge(named("a", noisy_run(noise=0.0)), named("b", fewer), limits)
    assert row_of(found, THROUGHPUT).outcome == "refuted"
    assert not row_of(found, THROUGHPUT).faster
    back = judge(named("b", fewer), named("a", noisy_run(noise=0.0)), limits)
    assert row_of(back, THROUGHPUT).outcome == "holds"
    assert row_of(back, THROUGHPUT).faster
    assert row_of(back, THROUGHPUT).smallest == pytest.approx(0.03)
    noisy = metric_change(THROUGHPUT, [noisy_run(noise=1.0)], [noisy_run(noise=1.0, seed=1)], 0.03)
    assert noisy.smallest is not None
    assert noisy.smallest > 0.031, "chance hides small losses, it does not show them"


@pytest.mark.parametrize(("slower", "faster"), [(0.7, True), (1.0, False), (1.12, False)])
def test_faster_means_that_all_of_the_interval_is(slower: float, faster: bool) -> None:
    row = row_of(gate([noisy_run()], [noisy_run(slower, seed=1)]), TPOT)
    assert row.faster is faster


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_the_smallest_change_is_where_refutation_begins(noise: float) -> None:
    """The same noise on a server that is slower by a little more, or a little less."""
    base, run = noisy_run(noise=noise), noisy_run(noise=noise, seed=1)
    seen = metric_change(TPOT, [base], [run], 0.05)
    assert seen.smallest is not None
    assert seen.change is not None
    assert seen.smallest > 0.05
    assert seen.low is not None
    width = math.log((1 + seen.change) / (1 + seen.low))
    assert width == pytest.approx(1.7 * noise * math.sqrt(2 / 200), rel=0.3)
    for off, outcome in ((1.001, "refuted"), (0.999, "cannot tell")):
        slower = noisy_run(noise=noise, seed=1)
        slower.requests["tpot_s"] *= (1 + seen.smallest) / (1 + seen.change) * off
        assert metric_change(TPOT, [base], [slower], 0.05).outcome == outcome


@pytest.mark.parametrize("count", [100, 1000])
def test_the_smallest_share_of_failures_is_where_refutation_begins(count: int) -> None:
    limits = {FINISHED: 0.01}
    healthy = named("a", noisy_run(count=count))
    smallest = row_of(judge(healthy, healthy, limits), FINISHED).smallest
    assert smallest is not None
    failures = round(smallest * count)
    for failed, outcome in ((failures, "refuted"), (failures - 1, "cannot tell")):
        run = named("b", noisy_run(count=count, failed=failed))
        assert row_of(judge(healthy, run, limits), FINISHED).outcome == outcome


@pytest.mark.parametrize(
    ("baselines", "runs"),
    [
        (1, 1),
        pytest.param(2, 1, marks=pytest.mark.slow),
        pytest.param(3, 2, marks=pytest.mark.slow),
    ],
)
def test_the_interval_holds_the_true_change_nine_times_in_ten(baselines: int, runs: int) -> None:
    """A server that is 4 % slower, on a machine that differs by 1 % from run to run."""
    rng, draws, inside = np.random.default_rng(5), 50, 0
    wander = 0.01 if baselines > 1 else 0.0
    for _ in range(draws):
        ours, theirs = (
            [
                noisy_run(slower * math.exp(wander * rng.standard_normal()), int(seed))
                for seed in rng.integers(2**31, size=count)
            ]
            for slower, count in ((1.0, baselines), (1.04, runs))
        )
        row = metric_change(TPOT, ours, theirs, 0.05)
        assert row.low is not None
        assert row.high is not None
        inside += row.low <= 0.04 <= row.high
    assert inside >= 0.8 * draws


@pytest.mark.parametrize(("error_s", "outcome"), [(0.0001, "refuted"), (0.01, "cannot tell")])
def test_replays_count_with_the_error_of_their_replications(error_s: float, outcome: str) -> None:
    sides = []
    for median in (0.020, 0.0224):
        run = noisy_run(kind="simulation", noise=0.0)
        run.extra["intervals"] = {TPOT: {"median": median, "standard_error": error_s}}
        sides.append(run)
    row = metric_change(TPOT, sides[:1], sides[1:], 0.05)
    assert row.change == pytest.approx(0.12)
    assert row.outcome == outcome


def test_every_metric_has_a_row_and_the_default_limits_judge() -> None:
    found = judge(named("a", thinking()), named("b", thinking(seed=1)))
    assert [row.metric for row in found.metrics] == [*METRICS, FINISHED]
    judged = {row.metric: row.limit for row in found.metrics if row.outcome}
    assert judged == GATE_LIMITS


def thinking(slower: float = 1.0, seed: int = 0) -> Run:
    """A noisy run whose first visible token comes 0.9 s after the first, or later."""
    run = noisy_run(seed=seed)
    visible_s = run.requests["first_token_s"] + 0.9 * slower
    rows = run.requests.assign(first_output_s=visible_s, reasoning_tokens=4)
    return replace(run, requests=derive(rows))


@pytest.mark.parametrize(("slower", "outcome"), [(1.0, "holds"), (1.3, "refuted"), (0.5, "holds")])
def test_the_time_to_the_first_visible_token_is_judged_where_all_runs_reason(
    slower: float, outcome: str
) -> None:
    found = judge(named("a", thinking()), named("b", thinking(slower, 1)))
    assert found.outcome == outcome
    assert found.named("refuted") == (["ttfo_s.mean"] if outcome == "refuted" else [])
    assert row_of(found, "ttfo_s.mean").change == pytest.approx(0.9 * (slower - 1), abs=0.01)
    plain = judge(named("a", thinking()), named("b", noisy_run(seed=1)))
    assert plain.outcome == "holds"
    assert [row.metric for row in plain.metrics if row.metric.startswith("ttfo")] == []


def test_a_limit_on_what_a_run_does_not_have_decides_nothing() -> None:
    found = judge(named("a", thinking()), named("b", noisy_run(seed=1)), parse_limits("ttfo=5%"))
    assert found.outcome == "cannot tell"
    assert found.doubts == ("--allow ttfo: not every run marks its reasoning; limit ttft",)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("tpot=5%", {TPOT: 0.05}),
        ("ttfo=5%,ttfo.p90=9%", {"ttfo_s.mean": 0.05, "ttfo_s.p90": 0.09}),
        ("ttft.p90=0.1, throughput=3%", {"ttft_s.p90": 0.1, THROUGHPUT: 0.03}),
        ("e2e=10%,ttft.p99=50%,finished=1%",
         {"e2e_s.mean": 0.1, "ttft_s.p99": 0.5, FINISHED: 0.01}),
    ],
)  # fmt: skip
def test_limits_are_read(text: str, limits: dict[str, float]) -> None:
    assert parse_limits(text) == pytest.approx(limits)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tpot", "'tpot' is not METRIC=SHARE; write for example tpot=5%"),
        ("tpt=5%", "unknown metric 'tpt'; did you mean 'tpot'?"),
        ("x=5%", "unknown metric 'x'; known are throughput, tpot, ttft, ttft.p50"),
        ("tpot=5ms", "tpot=5ms: not a share such as 5%, above 0, below 1"),
        ("tpot=0", "tpot=0: not a share"),
        ("tpot=100%", "tpot=100%: not a share"),
        ("tpot=nan", "tpot=nan: not a share"),
        ("", "no limit"),
    ],
)
def test_limits_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(LoadTestError) as caught:
        parse_limits(text)
    assert str(caught.value).startswith("--allow")
    assert message in str(caught.value)


def test_a_run_that_was_cut_off_is_not_faster_nor_does_it_hold() -> None:
    cut = gate([noisy_run()], [noisy_run(0.5, seed=1, stopped="killed after 56 of 400")])
    whole = gate([noisy_run()], [noisy_run(0.5, seed=1)])
    assert row_of(whole, TPOT).faster
    assert row_of(cut, TPOT).change == row_of(whole, TPOT).change
    assert {row.outcome for row in cut.metrics} == {None, "cannot tell"}
    assert not any(row.faster for row in cut.metrics)
