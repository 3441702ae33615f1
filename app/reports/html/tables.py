"""The tables of a report, with definitions one hover away, and errors as rows of a frame."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from servetwin.app.figures.canvas import Look
from servetwin.app.reports.claims import fitting, metric_name, predicted_figures
from servetwin.app.reports.report_folders import NamedRun, Trial
from servetwin.app.reports.table import Cell, Content, Table
from servetwin.app.reports.tables import FIRM_P99, POINTS, described, is_soft
from servetwin.app.verdict.claims import Comparison, MetricComparison
from servetwin.app.verdict.intervals import CONFIDENCE
from servetwin.app.words import METRICS, Metric, asset_table, number
from servetwin.sim.records.metrics import LATENCIES, LIMITED, SLO

_SOFT = f"* fewer than {FIRM_P99} values: not a firm p99"
_TOTALS: list[str] = asset_table("words.yaml")["report_totals"]
_HEADLINE = ("mean", "p50", "p90", "p99")
_COMPARED = ("metric", "predicted", "measured", "error", "limit", "verdict")
OUTCOME_CLASSES = {"holds": "good", "refuted": "bad", "cannot tell": "unsure", None: "quiet"}


def figures_table(named: NamedRun, slo: SLO | None) -> Table:
    """Return the main figures of one run: a row per latency, then the totals."""
    summary = named.run.summary(slo)
    rows: list[list[Content]] = []
    for name in filter(summary.__contains__, LIMITED):
        shown = _shown(name, [summary])
        cells = (_headline(summary, name, point, shown.factor) for point in _HEADLINE)
        rows.append([Cell(shown.title, shown.definition), *cells])
    for name in _totals(slo):
        value = number(summary[name], METRICS[name].factor)
        rows.append([_metric(name), value, *[""] * (len(_HEADLINE) - 1)])
    return Table(["metric", *_HEADLINE], rows, _marks([summary]))


def runs_table(runs: Sequence[NamedRun], looks: Mapping[str, Look], slo: SLO | None) -> Table:
    """Return the main figures of several runs: a row for each."""
    summaries = {named.name: named.run.summary(slo) for named in runs}
    shown = {name: _shown(name, list(summaries.values())) for name in LATENCIES[:2]}
    columns = [(name, point) for name in shown for point in _HEADLINE if point != "p50"]
    rows: list[list[Content]] = [
        [
            _run_name(run, looks),
            *(_headline(summary, name, point, shown[name].factor) for name, point in columns),
            *(number(summary[name], METRICS[name].factor) for name in _totals(slo)),
        ]
        for run, summary in summaries.items()
    ]
    heads = [f"{shown[name].title} {point}" for name, point in columns]
    head: list[Content] = ["run", *heads, *map(_metric, _totals(slo))]
    return Table(head, rows, _marks(list(summaries.values())))


def _totals(slo: SLO | None) -> list[str]:
    return [name for name in _TOTALS if slo or name not in ("goodput_per_s", "slo_attainment")]


def _shown(
    name: str, summaries: Sequence[Mapping[str, Any]], points: Sequence[str] = _HEADLINE
) -> Metric:
    """Return a metric in the unit that fits the figures of all runs."""
    figures = (of[name][point] for of in summaries if name in of for point in points)
    return METRICS[name].fitting(figures)


def _headline(summary: Mapping[str, Any], metric: str, point: str, factor: float) -> str:
    """Return a figure of a run, with the range of its replications where it is known."""
    shown = _point(summary[metric], point, factor)
    spread = summary.get("intervals", {}).get(f"{metric}.{point}")
    return _with_range(shown, (spread["p5"], spread["p95"]), factor) if spread else shown


def _marks(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Return what brackets and stars mean, where there are any."""
    notes = []
    if any("intervals" in summary for summary in summaries):
        notes.append("in brackets: what nine of ten replications lie between")
    if any(0 < summary["ttft_s"]["count"] < FIRM_P99 for summary in summaries):
        notes.append(_SOFT)
    return "; ".join(notes)


def latency_table(runs: Sequence[NamedRun], looks: Mapping[str, Look]) -> Table:
    """Return a row per metric, run and part of the run: count, mean, percentiles, maximum."""
    of_runs = {named.name: described(named.run) for named in runs}
    of_all = [figures for parts in of_runs.values() for figures in parts.values()]
    units = {metric: _shown(metric, of_all, POINTS) for metric in METRICS}
    rows: list[list[Content]] = [
        [
            Cell(shown.title, shown.definition),
            _run_name(name, looks),
            part,
            str(figures[metric]["count"]),
            *(_point(figures[metric], point, shown.factor) for point in POINTS),
        ]
        for metric, shown in units.items()
        for name, parts in of_runs.items()
        for part, figures in parts.items()
        if metric in figures
    ]
    note = f"{_SOFT}; finished requests only"
    head: list[Content] = ["metric", Cell("run", css="name"), "part", "count", *POINTS]
    return Table(head, rows, note)


def comparison_table(comparison: Comparison) -> Table:
    """Return predicted, measured and error with their intervals, limit and verdict."""
    rows = [[*_compared(row)] for row in comparison.metrics]
    return Table(_COMPARED, rows, _explained(comparison.repeats))


def judged_table(trials: Sequence[Trial]) -> Table:
    """Return what trials judge, under the name of each if they are several."""
    head, *others = _COMPARED
    rows: list[list[Content]] = []
    for trial in trials:
        name = [Cell(trial.name, css="name")] if len(trials) > 1 else []
        for row in trial.comparison.metrics:
            if row.limit is not None or not name:
                metric, *cells = _compared(row)
                rows.append([metric, *name, *cells])
    load = [Cell("load", css="name")] if len(trials) > 1 else []
    repeats = max(trial.comparison.repeats for trial in trials)
    return Table([head, *load, *others], rows, _explained(repeats))


def _explained(repeats: int) -> str:
    return (
        f"error = (predicted - measured) / measured, with its {CONFIDENCE:.0%} confidence interval "
        f"over {repeats} measured; a metric holds when the interval is within the limit, and "
        "is refuted when it is outside"
    )


def _compared(row: MetricComparison) -> Iterator[Content]:
    predicted = predicted_figures(row)
    metric = fitting(row.metric, predicted[0], row.measured)
    yield Cell(f"{metric_name(row.metric)}, {metric.unit}", metric.definition)
    shown = number(predicted[0], metric.factor)
    yield _with_range(shown, predicted[1:], metric.factor)
    yield number(row.measured, metric.factor)
    yield _error(row)
    yield "-" if row.limit is None else f"{row.limit:.0%}"
    yield Cell(row.outcome or "", css=OUTCOME_CLASSES[row.outcome])


def _error(row: MetricComparison) -> str:
    if row.error is None:
        return "-"
    if row.error_low is None or row.error_high is None or row.error_low == row.error_high:
        return f"{row.error:+.1%}"
    return f"{row.error:+.1%} ({row.error_low:+.1%} to {row.error_high:+.1%})"


def _with_range(shown: str, ends: Sequence[float | None], factor: float) -> str:
    """Return a figure with its interval; one without extent is none."""
    if shown == "-" or None in ends or ends[0] == ends[1]:
        return shown
    low, high = (number(end, factor) for end in ends)
    return f"{shown} ({low} to {high})"


def _metric(metric: str) -> Cell:
    return Cell(METRICS[metric].title, METRICS[metric].definition)


def _run_name(name: str, looks: Mapping[str, Look]) -> Cell:
    return Cell(name, colour=looks[name].colour)


def _point(figures: Mapping[str, Any], point: str, factor: float) -> str:
    soft = point == "p99" and is_soft(figures)
    return number(figures[point], factor) + ("*" if soft else "")


def error_rows(metrics: Sequence[MetricComparison]) -> pd.DataFrame:
    """Return the rows that ``errors_with_intervals`` draws, of measured metrics."""
    known = [row for row in metrics if row.predicted and row.measured]
    shares = [(row.error, row.error_low, row.error_high, row.limit) for row in known]
    frame = 100 * pd.DataFrame(shares, columns=["error", "low", "high", "allowed"], dtype=float)
    return frame.assign(metric=[metric_name(row.metric) for row in known])
