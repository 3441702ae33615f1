from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from servetwin.app.reports.claims import comparison_table, render_comparison, render_requests
from servetwin.app.verdict.claims import (
    DEFAULT_LIMITS,
    Comparison,
    MetricComparison,
    compare,
    compare_requests,
    worst,
)
from servetwin.app.verdict.same_load import check_same_load
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.records.metrics import derive
from servetwin.sim.records.run import Run, RunKind
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

COUNT = 40
ARRIVALS = tuple(float(number) for number in range(4))
TTFT = "ttft_s.mean"


def run_of(
    ttft_s: float,
    tpot_s: float = 0.05,
    kind: RunKind = "loadtest",
    statuses: Sequence[str] = (),
    count: int = COUNT,
) -> Run:
    """Requests of five tokens a second apart, all alike; the first four are a, b, c and d."""
    count = len(statuses) or count
    scheduled = np.arange(count) * 1.0
    first = scheduled + ttft_s
    stamps = pd.DataFrame(
        {
            "request_id": [*"abcd", *(f"r{number}" for number in range(4, count))][:count],
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
    ("predicted", "measured", "outcome"),
    [
        (0.109, [0.100, 0.100], "holds"),
        (0.111, [0.100, 0.100], "refuted"),
        (0.091, [0.100, 0.100], "holds"),
        (0.089, [0.100, 0.100], "refuted"),
        (0.105, [0.0999, 0.1001], "holds"),
        (0.111, [0.095, 0.105], "cannot tell"),
        (0.100, [0.095, 0.105], "cannot tell"),
        (0.300, [0.095, 0.105], "refuted"),
        (3.000, [0.500, 1.500], "cannot tell"),
        (0.100, [0.100], "cannot tell"),
    ],
    ids=[
        "over, in", "over, out", "under, in", "under, out", "narrow", "wide, out", "wide, in",
        "wide, far out", "nothing known", "no repeat",
    ],
)  # fmt: skip
def test_the_interval_of_the_error_decides(
    predicted: float, measured: list[float], outcome: str
) -> None:
    """Without predicted requests only the repeats show the chance."""
    comparison = compare(
        {TTFT: Interval(predicted, predicted, predicted)},
        [run_of(t) for t in measured],
        {TTFT: 0.1},
    )
    assert by_metric(comparison)[TTFT].outcome == outcome
    assert comparison.outcome == outcome
    assert comparison.as_dict()["holds"] is (outcome == "holds")


def test_no_noise_widens_a_limit() -> None:
    """Errors of -45 % with any noise never hold: the verdict that once did not bite."""
    for noise in np.linspace(0, 1.8, 10):
        measured = [run_of(0.1 * (1 - noise / 2)), run_of(0.1 * (1 + noise / 2))]
        found = compare({TTFT: Interval(0.055, 0, 1)}, measured, {TTFT: 0.1})
        assert found.outcome != "holds"


def test_the_worst_metric_decides() -> None:
    rows = {TTFT: Interval(0.1, 0, 1), "tpot_s.mean": Interval(0.06, 0.06, 0.06)}
    limits = {TTFT: 0.1, "tpot_s.mean": 0.05}
    found = compare(rows, [run_of(0.1), run_of(0.1)], limits)
    assert found.outcome == "refuted"
    assert found.named("refuted") == ["tpot_s.mean"]
    assert found.named("holds") == [TTFT]
    assert worst([]) == "holds"
    assert worst(["holds", "cannot tell"]) == "cannot tell"


@pytest.mark.parametrize(
    ("low", "high", "measured", "outcome"),
    [
        (0.110, 0.130, [0.1, 0.1], "cannot tell"),
        (0.112, 0.900, [0.1, 0.1], "refuted"),
        (0.112, 0.130, [0.097, 0.103], "cannot tell"),
        (0.0, 0.130, [0.1, 0.1], "cannot tell"),
        (0.001, 0.139, [0.135, 0.135], "cannot tell"),
        (0.001, 0.121, [0.135, 0.135], "refuted"),
    ],
    ids=["reaches in", "does not", "with noise", "from nothing", "reaches up", "does not up"],
)
def test_a_forecast_is_refuted_only_outside_its_own_interval(
    low: float, high: float, measured: list[float], outcome: str
) -> None:
    """Predicted 0.12 +- what the calibration knows, with a limit of 10 %."""
    found = compare({TTFT: Interval(0.12, low, high)}, [run_of(t) for t in measured], {TTFT: 0.1})
    assert found.outcome == outcome
    words = " ".join(render_comparison(found).split())
    is_vague = outcome == "cannot tell" and len(set(measured)) == 1
    assert found.vague == ([TTFT] if is_vague else [])
    assert ("is too unsure to be refuted; more rounds of calibration" in words) is is_vague


@pytest.mark.parametrize(
    ("limited", "outcome"),
    [((), "holds"), ((0,), "cannot tell"), ((0, 1), "cannot tell")],
)
def test_a_limited_client_cannot_tell(limited: tuple[int, ...], outcome: str) -> None:
    found = compare({TTFT: Interval(0.1, 0, 1)}, limited_runs((0.1, 0.1), limited), {TTFT: 0.1})
    assert found.outcome == outcome
    doubt = f"the client was limited in {len(limited)} of 2 load tests (CPU 97%); give it a core"
    assert [d.startswith(doubt) for d in found.doubts] == [True] * bool(limited)
    assert found.set_aside == 0


def limited_runs(ttfts_s: tuple[float, ...], limited: tuple[int, ...]) -> list[Run]:
    """Return a run for each TTFT; the client of those at the places ``limited`` was too slow."""
    runs = [run_of(ttft_s) for ttft_s in ttfts_s]
    for place, run in enumerate(runs):
        run.extra["delivered"] = {"limited_by": ["CPU 97%"] if place in limited else []}
    return runs


@pytest.mark.parametrize(
    ("limited", "judged", "outcome"),
    [((1,), (0.1, 0.1), "holds"), ((0,), (0.2, 0.1), "cannot tell"), ((1, 2), None, "cannot tell")],
)
def test_two_runs_whose_client_kept_up_do_without_the_others(
    limited: tuple[int, ...], judged: tuple[float, float] | None, outcome: str
) -> None:
    """Whatever the others measured, good or bad."""
    runs = limited_runs((0.1, 0.2, 0.1), limited)
    found = compare({TTFT: Interval(0.1, 0.09, 0.11)}, runs, {TTFT: 0.1})
    assert found.outcome == outcome
    words = " ".join(render_comparison(found).split())
    if judged is None:
        assert (found.repeats, found.set_aside, len(found.doubts)) == (3, 0, 1)
        assert "Set aside" not in words
    else:
        row = next(row for row in found.metrics if row.metric == TTFT)
        assert (found.repeats, found.set_aside, found.doubts) == (2, 1, ())
        assert row.measured == pytest.approx(sum(judged) / 2)
        assert "Set aside: 1 more load test, in which the client was limited." in words


def test_few_requests_cannot_tell() -> None:
    few = [run_of(0.1, count=29), run_of(0.1, count=40)]
    found = compare({TTFT: Interval(0.1, 0, 1)}, few, {TTFT: 0.1})
    assert found.outcome == "cannot tell"
    assert found.doubts == ("29 finished requests are too few; send at least 30, better 200",)


def test_metrics_without_a_limit_only_inform() -> None:
    runs = [run_of(0.1), run_of(0.1)]
    comparison = compare({"e2e_s.mean": Interval(9.0, 9.0, 9.0)}, runs, {TTFT: 0.1})
    assert by_metric(comparison)["e2e_s.mean"].error == pytest.approx(29.0)
    assert by_metric(comparison)["e2e_s.mean"].outcome is None
    assert compare({}, runs, {}).outcome == "cannot tell", "nothing was judged"


def test_a_predicted_run_is_a_point() -> None:
    row = by_metric(compare(run_of(0.2, kind="simulation"), [run_of(0.3)]))[TTFT]
    assert row.predicted is not None
    assert row.predicted.value == row.predicted.low == row.predicted.high == pytest.approx(0.2)
    assert row.noise is None


@pytest.mark.parametrize("missing", ["predicted", "measured"])
def test_what_only_one_side_has_is_refuted(missing: str) -> None:
    nothing = run_of(0.1, statuses=["failed"] * COUNT)
    predicted, measured = run_of(0.1, kind="simulation"), run_of(0.1)
    if missing == "predicted":
        comparison = compare(nothing, [measured])
    else:
        comparison = compare(predicted, [nothing])
    judged = {row.metric: row.outcome for row in comparison.metrics if row.limit is not None}
    assert judged == dict.fromkeys(DEFAULT_LIMITS.keys() - {"ttfo_s.mean"}, "refuted")


def thinking(visible_s: float, kind: RunKind = "loadtest") -> Run:
    run = run_of(0.1, kind=kind)
    rows = run.requests.assign(first_output_s=run.requests["scheduled_s"] + visible_s)
    return replace(run, requests=derive(rows.assign(reasoning_tokens=2)))


@pytest.mark.parametrize(
    ("predicted", "measured", "outcome"),
    [
        (thinking(2.0, "simulation"), thinking(2.1), "holds"),
        (thinking(2.0, "simulation"), thinking(3.0), "refuted"),
        (thinking(2.0, "simulation"), run_of(0.1), None),
        (run_of(0.1, kind="simulation"), thinking(2.0), None),
    ],
)
def test_the_first_visible_token_is_judged_where_both_sides_reason(
    predicted: Run, measured: Run, outcome: str | None
) -> None:
    comparison = compare(predicted, [measured])
    row = by_metric(comparison).get("ttfo_s.mean")
    assert (row and row.outcome) == outcome
    assert comparison.outcome == (outcome or "holds")


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
    predicted = run_of(0.1, kind=kind, count=4)
    if message is None:
        check_same_load(predicted, trace)
        return
    with pytest.raises(LoadTestError) as caught:
        check_same_load(predicted, trace)
    assert str(caught.value).startswith("--against: ")
    assert message in str(caught.value)
    assert SAME in str(caught.value)


def test_a_longer_trace_is_another_load() -> None:
    longer = Trace((*trace_of().requests, Request("e", 4.0, 10, 5)), "t")
    with pytest.raises(LoadTestError, match="has 4 requests, the trace 5; give the same"):
        check_same_load(run_of(0.1, kind="simulation", count=4), longer)


def test_other_ids_are_another_load() -> None:
    strangers = tuple(
        replace(request, request_id=f"x{request.request_id}") for request in trace_of()
    )
    with pytest.raises(LoadTestError, match="request 'xa' of the trace"):
        check_same_load(run_of(0.1, kind="simulation", count=4), Trace(strangers, "t"))


def test_the_table_reads_as_it_is_meant() -> None:
    prediction = {TTFT: Interval(0.11, 0.105, 0.12), "tpot_s.mean": Interval(0.06, 0.058, 0.063)}
    limits = {TTFT: 0.11, "tpot_s.mean": 0.05}
    text = render_comparison(compare(prediction, [run_of(0.1), run_of(0.1)], limits))
    lines = text.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["unit", "predicted", "low", "high", "measured", "error", "from", "to", "limit"],
        ["output", "throughput", "tokens/s", *("-" * 3), "5.09", *("-" * 4)],
        [
            *("TPOT", "mean", "ms", "60.00", "58.00", "63.00", "50.00"),
            *("+20.0%", "+20.0%", "+20.0%", "5%", "REFUTED"),
        ],
        [
            *("TTFT", "mean", "ms", "110.00", "105.00", "120.00", "100.00"),
            *("+10.0%", "+10.0%", "+10.0%", "11%", "holds"),
        ],
    ]
    said = "The prediction is REFUTED: 2 load tests place the error of TPOT mean out of limits."
    assert said in lines
    assert max(map(len, lines)) <= 100


def test_requests_without_a_partner_are_named() -> None:
    predicted = run_of(0.3, kind="simulation", count=4)
    measured = run_of(0.1, statuses=["finished", "finished", "failed", "finished"])
    assert render_requests(compare_requests(predicted, measured)).splitlines() == [
        "request by request: 3 matched, 1 not",
        "  |TTFT predicted - measured|, ms: p50 200.00, p90 200.00, max 200.00",
        "  |TPOT predicted - measured|, ms: p50 0.00, p90 0.00, max 0.00",
        "  |E2E latency predicted - measured|, ms: p50 200.00, p90 200.00, max 200.00",
        "  not matched: c (finished in the prediction, failed in the run)",
    ]


def test_large_figures_keep_the_table_narrow() -> None:
    prediction = {TTFT: Interval(9_876.54, 987.6, 12_345.6)}
    found = compare(prediction, [run_of(1.0), run_of(2_000.0)], {TTFT: 0.1})
    (line,) = (one for one in comparison_table(found.metrics) if one.startswith("TTFT mean"))
    assert len(line) <= 100
    assert line.split()[-6:] == ["+887%", "-98.2%", ">999%", "10%", "cannot", "tell"]
