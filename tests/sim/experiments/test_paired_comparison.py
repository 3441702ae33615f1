"""Policies compared on common random numbers, with answers known beforehand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from servetwin.sim.experiments.paired_comparison import (
    METRICS,
    compare,
    compare_summaries,
    request_differences,
)
from servetwin.sim.records.metrics import common, derive, figure
from servetwin.sim.records.run import Run, RunError

IDS = ["a", "b", "c"]


def frame(e2e_s: list[float]) -> pd.DataFrame:
    """Requests at 0, 1, 2 s whose first token came halfway; NaN did not finish."""
    latency_s = np.array(e2e_s)
    scheduled_s = np.arange(3.0)
    return derive(
        pd.DataFrame(
            {
                "request_id": IDS,
                "status": np.where(np.isnan(latency_s), "refused", "finished"),
                "scheduled_s": scheduled_s,
                "first_token_s": scheduled_s + latency_s / 2,
                "last_token_s": scheduled_s + latency_s,
                "prompt_tokens": 4,
                "output_tokens": 3,
                "cached_tokens": 0,
                "preemptions": 0,
            }
        )
    )


def run(*e2e_s: float) -> Run:
    return Run("simulation", frame(list(e2e_s)), pd.DataFrame(), {})


def test_the_interval_is_students_t_over_the_paired_differences() -> None:
    a = [run(1, 2, 3), run(4, 5, 6), run(2, 2, 2)]
    b = [run(2, 3, 4), run(4, 5, 6), run(4, 4, 4)]  # differences of the means: 1, 0, 2
    found = {one.metric: one for one in compare(a, b).metrics}["e2e_s.mean"]
    assert (found.a, found.b, found.seeds) == (3, 4, 3)
    expected = stats.ttest_rel([3, 5, 4], [2, 5, 2]).confidence_interval(0.95)
    assert found.difference == pytest.approx(1)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert not found.sure


def test_what_both_sides_share_cancels() -> None:
    rng = np.random.default_rng(3)
    loads = rng.lognormal(size=(20, 3)) * 10
    a = [run(*load) for load in loads]
    b = [run(*(load + 0.01 + 0.001 * rng.standard_normal())) for load in loads]
    found = {one.metric: one for one in compare(a, b).metrics}["e2e_s.p50"]
    assert found.sure
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.01 < found.high
    assert found.high - found.low < 0.002, "though the figures themselves vary by seconds"


def test_an_interval_covers_the_true_difference_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        noise = rng.standard_normal(6)
        summaries_a = [summary(10.0) for _ in noise]
        summaries_b = [summary(10.0 + 1.0 + n) for n in noise]
        one = compare_summaries(summaries_a, summaries_b)[0]
        assert one.low is not None
        assert one.high is not None
        covered += one.low <= 1.0 <= one.high
    assert stats.binomtest(covered, 400, 0.95).pvalue > 0.001


def summary(value: float) -> dict[str, object]:
    parts = dict.fromkeys(("mean", "p50", "p90", "p99"), value)
    return {
        **dict.fromkeys(("ttft_s", "tpot_s", "e2e_s"), parts),
        "output_throughput_tokens_per_s": value,
        "request_throughput_per_s": None,
    }


def test_every_metric_is_there_and_an_undefined_one_is_none() -> None:
    known = run(1, 2, 3).summary()
    metrics = common(METRICS, [known])
    found = compare_summaries([summary(1.0)], [summary(3.0)])
    assert [one.metric for one in found] == metrics
    assert all(figure(known, metric) is not None for metric in metrics)
    assert (found[0].difference, found[0].low, found[0].sure) == (2, None, False)
    assert (found[-1].difference, found[-1].seeds) == (None, 0)


def test_figures_of_some_runs_only_are_there_where_all_runs_have_them() -> None:
    thinking, plain = {**summary(1.0), "ttfo_s": summary(2.0)["ttft_s"]}, summary(3.0)
    both = {one.metric: one for one in compare_summaries([thinking], [thinking])}
    assert (both["ttfo_s.mean"].a, both["ttfo_s.mean"].difference) == (2.0, 0.0)
    one = compare_summaries([thinking], [plain])
    assert [of.metric for of in one if of.metric.startswith(("ttfo_s", "task"))] == []


def test_seeds_without_the_metric_on_both_sides_are_left_out() -> None:
    nan = float("nan")
    found = compare([run(nan, nan, nan), run(1, 1, 1)], [run(2, 2, 2), run(2, 2, 2)]).metrics
    e2e = {one.metric: one for one in found}["e2e_s.mean"]
    assert (e2e.a, e2e.b, e2e.difference, e2e.seeds) == (1, 2, 1, 1)


def test_requests_that_gained_and_lost_most_are_means_over_the_seeds() -> None:
    nan = float("nan")
    a = [run(5, 1, 1), run(7, 1, nan)]
    b = [run(3, 2, 1), run(3, 4, 9)]
    found = compare(a, b)
    assert found.gained.to_dict("records") == [
        {"request_id": "a", "a": 6.0, "b": 3.0, "difference": -3.0, "seeds": 2}
    ]
    assert found.lost["request_id"].tolist() == ["b"]
    assert found.lost["difference"].tolist() == [2.0]
    every = request_differences([r.requests for r in a], [r.requests for r in b], "ttft_s")
    assert every.set_index("request_id")["difference"].to_dict() == {"a": -1.5, "b": 1.0, "c": 0.0}
    assert every.set_index("request_id")["seeds"].to_dict() == {"a": 2, "b": 2, "c": 1}


def test_only_so_many_are_listed_the_greatest_first() -> None:
    found = compare([run(1, 1, 1)], [run(2, 4, 3)], most=2)
    assert found.lost["request_id"].tolist() == ["b", "c"]
    assert found.gained.empty


@pytest.mark.parametrize(("a", "b"), [(0, 0), (1, 2)])
def test_runs_that_do_not_come_in_pairs_are_refused(a: int, b: int) -> None:
    with pytest.raises(RunError, match=f"there are {a} and {b}"):
        compare([run(1, 1, 1)] * a, [run(1, 1, 1)] * b)
