"""The tables of a report, as the terminal prints them, with definitions one hover away."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.figures import Look, gaps_s
from app.html.elements import Child, defined, element, table
from app.html.facts import swatch
from app.text.metric_labels import METRICS, Metric
from app.text.report_folders import NamedRun
from loadtest.report.comparison import Comparison, MetricComparison
from loadtest.report.comparison_report import metric_name, predicted_figures
from loadtest.report.error_interval import CONFIDENCE
from sim.records.metrics import SLO, describe
from sim.records.run import Run
from sim.records.steady_part import STEADY_PART, WHOLE_RUN

POINTS = ("mean", "p50", "p90", "p95", "p99", "max")
_FIRM_P99 = 100
_TOTALS = (
    "output_throughput_tokens_per_s",
    "request_throughput_per_s",
    "goodput_per_s",
    "slo_attainment",
    "prefix_hit_rate_tokens",
    "preemptions",
)
OUTCOME_CLASSES = {"holds": "good", "refuted": "bad", "cannot tell": "unsure", None: "quiet"}


def latency_table(runs: Sequence[NamedRun], looks: Mapping[str, Look]) -> ET.Element:
    """Return a row per metric, run and part of the run: count, mean, percentiles, maximum."""
    of_runs = {named.name: described(named.run) for named in runs}
    rows: list[list[Child]] = [
        [
            defined(shown.title, shown.definition),
            element("span", swatch(looks[name]), name),
            part,
            str(figures[metric]["count"]),
            *(_point(figures[metric], point, shown.factor) for point in POINTS),
        ]
        for metric, shown in _in_one_unit(of_runs).items()
        for name, parts in of_runs.items()
        for part, figures in parts.items()
        if metric in figures
    ]
    note = f"* fewer than {_FIRM_P99} values: not a firm p99; finished requests only"
    return table(["metric", "run", "part", "count", *POINTS], rows, note)


def _in_one_unit(
    of_runs: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]],
) -> dict[str, Metric]:
    """Return the metrics, each in the unit in which the figures of all runs are shown."""
    found = [figures for parts in of_runs.values() for figures in parts.values()]
    return {
        name: metric.fitting(of[name][point] for of in found if name in of for point in POINTS)
        for name, metric in METRICS.items()
    }


def totals_table(
    runs: Sequence[NamedRun], looks: Mapping[str, Look], slo: SLO | None
) -> ET.Element:
    """Return throughput, goodput, prefix hits and preemptions: a column per run."""
    summaries = [named.run.summary(slo) for named in runs]
    steady = [summary["steady"] for summary in summaries]
    rows: list[list[Child]] = [
        [
            defined(METRICS[metric].title, METRICS[metric].definition),
            part,
            *(_number(summary[metric], METRICS[metric].factor) for summary in of_part),
        ]
        for metric in _TOTALS
        for part, of_part in ((WHOLE_RUN, summaries), (STEADY_PART, steady))
        if metric in of_part[0]
    ]
    names = [element("span", swatch(looks[named.name]), named.name) for named in runs]
    return table(["", "part", *names], rows)


def comparison_table(found: Comparison, caption: str | None = None) -> ET.Element:
    """Return predicted, measured and error with their intervals, limit and verdict.

    Without a ``caption``, it explains the error.
    """
    head = ["metric", "predicted", "low", "high", "measured", "error", "from", "to", "limit", ""]
    explained = (
        f"error = (predicted - measured) / measured, with its {CONFIDENCE:.0%} confidence interval "
        f"over {found.repeats} measured; a metric holds when the interval is within the limit, and "
        "is refuted when it is outside"
    )
    return table(head, ([*_compared(row)] for row in found.metrics), caption or explained)


def _compared(row: MetricComparison) -> Iterator[Child]:
    predicted = predicted_figures(row)
    metric = METRICS[row.metric.partition(".")[0]].fitting((predicted[0], row.measured))
    yield defined(f"{metric_name(row.metric)}, {metric.unit}", metric.definition)
    yield from (_number(value, metric.factor) for value in (*predicted, row.measured))
    errors = (row.error, row.error_low, row.error_high)
    shares = (*((error, "+.1%") for error in errors), (row.limit, ".0%"))
    yield from ("-" if share is None else format(share, form) for share, form in shares)
    yield element("span", row.outcome or "", class_=OUTCOME_CLASSES[row.outcome])


def described(run: Run) -> dict[str, Mapping[str, Mapping[str, Any]]]:
    """Return count, mean, percentiles and maximum of every metric that a request has.

    They are of the whole run and, where there is one, of its steady part.
    """
    summary = run.summary()
    found = {name: summary[name] for name in ("ttft_s", "tpot_s", "e2e_s")}
    finished = run.requests[run.requests["status"] == "finished"]
    if "ttft_sent_s" in run.requests:
        found["ttft_sent_s"] = describe(finished["ttft_sent_s"])
    if "chunk_s" in run.requests:
        found["gap_s"] = describe(gaps_s(run.requests))
    found |= {name: summary[name] for name in ("decode_tps", "request_tps")}
    steady = summary["steady"]
    settled = () if steady["unsettled"] else found.keys() & steady.keys()
    return {WHOLE_RUN: found, STEADY_PART: {name: steady[name] for name in settled}}


def _point(figures: Mapping[str, Any], point: str, factor: float) -> str:
    soft = point == "p99" and 0 < figures["count"] < _FIRM_P99
    return _number(figures[point], factor) + ("*" if soft else "")


def _number(value: float | None, factor: float) -> str:
    if value is None:
        return "-"
    scaled = value * factor
    return f"{scaled:,.0f}" if abs(scaled) >= 1000 else f"{scaled:.4g}"
