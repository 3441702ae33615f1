from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from loadtest.report.comparison import (
    DEFAULT_LIMITS,
    Comparison,
    MetricComparison,
    check_same_load,
    compare,
    compare_requests,
)
from loadtest.report.comparison_report import render_comparison, render_requests
from sim.experiments.predict import Interval
from sim.records.metrics import derive
from sim.records.run import Run, RunKind
from workloads.errors import LoadTestError
from workloads.request import Request
from workloads.trace import Trace

ARRIVALS = (0.0, 1.0, 2.0, 3.0)
TTFT = "ttft_s.mean"


def run_of(
    ttft_s: float, tpot_s: float = 0.05, kind: RunKind = "loadtest", statuses: Sequence[str] = ()
) -> Run:
    """Four requests of five tokens, all alike."""
    scheduled = np.array(ARRIVALS)
    first = scheduled + ttft_s
    stamps = pd.DataFrame(
        {
            "request_id": ["a", "b", "c", "d"],
            "status": list(statuses) or "finished",
            "scheduled_s": scheduled,
            "sent_s": scheduled,
            "first_token_s": first,
            "last_token_s": first + 4 * tpot_s,
            "prompt_tokens": 10,
            "output_tokens": 5,
            "cached_tokens": 0,
            "preemptions": 0,
        }
    )
    return Run(kind, derive(stamps), pd.DataFrame(), {})


def by_metric(comparison: Comparison) -> dict[str, MetricComparison]:
    return {row.metric: row for row in comparison.metrics}


def test_error_and_noise_are_relative_to_the_mean_of_the_repeats() -> None:
    row = by_metric(compare(run_of(0.25, kind="simulation"), [run_of(0.15), run_of(0.25)]))[TTFT]
    assert row.predicted == Interval(0.25, 0.25, 0.25)
    assert row.measured == pytest.approx(0.2)
    assert row.error == pytest.approx(0.25)
    assert row.noise == pytest.approx(0.5)
    assert row.limit == 0.10


@pytest.mark.parametrize(
    ("predicted", "measured", "holds"),
    [
        (0.109, [0.100], True),
        (0.111, [0.100], False),
        (0.091, [0.100], True),
        (0.089, [0.100], False),
        (0.119, [0.095, 0.105], True),
        (0.121, [0.095, 0.105], False),
    ],
    ids=["over, in", "over, out", "under, in", "under, out", "within noise", "beyond noise"],
)
def test_a_metric_holds_within_its_limit_or_twice_the_noise(
    predicted: float, measured: list[float], holds: bool
) -> None:
    comparison = compare(
        {TTFT: Interval(predicted, 0, 1)}, [run_of(t) for t in measured], {TTFT: 0.1}
    )
    assert by_metric(comparison)[TTFT].holds is holds
    assert comparison.holds is holds


def test_metrics_without_a_limit_only_inform() -> None:
    comparison = compare({"e2e_s.mean": Interval(9.0, 9.0, 9.0)}, [run_of(0.1)], {})
    assert by_metric(comparison)["e2e_s.mean"].error == pytest.approx(29.0)
    assert by_metric(comparison)["e2e_s.mean"].holds is None
    assert comparison.holds


def test_several_predicted_runs_give_their_mean_and_range() -> None:
    seeds = [run_of(t, kind="simulation") for t in (0.1, 0.2, 0.6)]
    row = by_metric(compare(seeds, [run_of(0.3)]))[TTFT]
    assert row.predicted is not None
    assert (row.predicted.value, row.predicted.low, row.predicted.high) == pytest.approx(
        (0.3, 0.1, 0.6)
    )
    assert row.noise is None


@pytest.mark.parametrize("missing", ["predicted", "measured"])
def test_an_undefined_side_does_not_hold(missing: str) -> None:
    nothing = run_of(0.1, statuses=["failed"] * 4)
    predicted, measured = run_of(0.1, kind="simulation"), run_of(0.1)
    if missing == "predicted":
        comparison = compare(nothing, [measured])
    else:
        comparison = compare(predicted, [nothing])
    judged = {row.metric: row.holds for row in comparison.metrics if row.limit is not None}
    assert judged == dict.fromkeys(DEFAULT_LIMITS, False)


def test_a_limit_on_an_unknown_metric_is_refused() -> None:
    with pytest.raises(LoadTestError, match=r"^limit on unknown metric 'ttft'; known: output_"):
        compare(run_of(0.1), [run_of(0.1)], {"ttft": 0.1})


def test_requests_are_joined_by_id_and_the_rest_is_listed() -> None:
    predicted = run_of(0.3, 0.06, "simulation", ["finished", "finished", "refused", "finished"])
    measured = run_of(0.1, 0.05, statuses=["finished", "failed", "finished", "finished"])
    predicted.requests.loc[3, "request_id"] = "z"
    differences = compare_requests(predicted, measured)
    assert differences.frame["request_id"].tolist() == ["a"]
    row = differences.frame.iloc[0]
    assert row["ttft_s_difference"] == pytest.approx(0.2)
    assert row["tpot_s_difference"] == pytest.approx(0.01)
    assert row["e2e_s_difference"] == pytest.approx(0.24)
    assert differences.unmatched == {
        "b": "finished in the prediction, failed in the run",
        "c": "refused in the prediction, finished in the run",
        "d": "absent in the prediction, finished in the run",
        "z": "finished in the prediction, absent in the run",
    }


def trace_of(prompt_tokens: int = 10, arrivals: Sequence[float] = ARRIVALS) -> Trace:
    rows = zip("abcd", arrivals, strict=False)
    return Trace(tuple(Request(name, at_s, prompt_tokens, 5) for name, at_s in rows), "t")


SAME = "give the same trace and"


@pytest.mark.parametrize(
    ("kind", "trace", "message"),
    [
        ("simulation", trace_of(), None),
        ("simulation", trace_of(arrivals=[0.0, 1.0, 2.0]), "4 requests, the trace 3; "),
        ("simulation", trace_of(arrivals=[0.0, 1.0, 2.5, 3.0]), "request 'c' of the trace has an"),
        (
            "simulation",
            trace_of(prompt_tokens=11),
            "request 'a' of the trace has another arrival or prompt length",
        ),
        ("loadtest", trace_of(prompt_tokens=11), None),
    ],
    ids=["same", "count", "arrival", "prompt", "measured prompts"],
)
def test_only_the_same_load_is_compared(kind: RunKind, trace: Trace, message: str | None) -> None:
    predicted = run_of(0.1, kind=kind)
    if message is None:
        check_same_load(predicted, trace)
        return
    with pytest.raises(LoadTestError) as caught:
        check_same_load(predicted, trace)
    assert str(caught.value).startswith("--against: ")
    assert message in str(caught.value)
    assert SAME in str(caught.value)


def test_other_ids_are_another_load() -> None:
    strangers = tuple(
        replace(request, request_id=f"x{request.request_id}") for request in trace_of()
    )
    with pytest.raises(LoadTestError, match="request 'xa' of the trace"):
        check_same_load(run_of(0.1, kind="simulation"), Trace(strangers, "t"))


def test_the_table_reads_as_it_is_meant() -> None:
    prediction = {TTFT: Interval(0.11, 0.105, 0.12), "tpot_s.mean": Interval(0.06, 0.05, 0.07)}
    limits = {TTFT: 0.1, "tpot_s.mean": 0.05}
    text = render_comparison(compare(prediction, [run_of(0.1), run_of(0.1)], limits))
    lines = text.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["unit", "predicted", "low", "high", "measured", "error", "noise", "limit"],
        ["output", "throughput", "tokens/s", "-", "-", "-", "6.06", "-", "0.0%", "-"],
        ["TPOT", "mean", "ms", "60.00", "50.00", "70.00", "50.00", "+20.0%", "0.0%", "5%", "FAILS"],
        [
            *("TTFT", "mean", "ms", "110.00", "105.00", "120.00", "100.00"),
            *("+10.0%", "0.0%", "10%", "holds"),
        ],
    ]
    assert "the prediction FAILS against 2 runs" in lines
    assert max(map(len, lines)) <= 100


def test_requests_without_a_partner_are_named() -> None:
    predicted = run_of(0.3, kind="simulation")
    measured = run_of(0.1, statuses=["finished", "finished", "failed", "finished"])
    assert render_requests(compare_requests(predicted, measured)).splitlines() == [
        "request by request: 3 matched, 1 not",
        "  |TTFT predicted - measured|, ms: p50 200.00, p90 200.00, max 200.00",
        "  |TPOT predicted - measured|, ms: p50 0.00, p90 0.00, max 0.00",
        "  |E2E latency predicted - measured|, ms: p50 200.00, p90 200.00, max 200.00",
        "  not matched: c (finished in the prediction, failed in the run)",
    ]
