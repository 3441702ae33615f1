"""The first screen of a report: the verdict or the headline as a card, its table, its charts."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from servetwin.app.figures import agreement, canvas, curves
from servetwin.app.figures.canvas import Looks
from servetwin.app.figures.load_curves import level_curves
from servetwin.app.reports import level_sweep
from servetwin.app.reports.claims import WORDS, verdict_in_words
from servetwin.app.reports.html import tables
from servetwin.app.reports.html.charts import Chart, Charts
from servetwin.app.reports.html.facts import doubts, slo_line
from servetwin.app.reports.report_folders import NamedRun, Trial
from servetwin.app.reports.table import Table
from servetwin.app.verdict.claims import SEVERITY, worst
from servetwin.app.verdict.same_load import same_requests
from servetwin.app.words import METRICS, number
from servetwin.loadtest.sweep.sweep import Sweep
from servetwin.sim.records.metrics import SLO

# More trials than these are folded, the worst first.
MOST_TRIALS = 3
_VERDICT = re.compile(r"(?:The prediction (?:holds|is REFUTED)|Cannot tell): (\w)")
_SHOWN_QUANTILE = "p90"
_PRINTED_CURVES = 2


@dataclass(frozen=True, slots=True)
class Card:
    """A statement: of which kind it is, in words, what explains it, and what puts it in doubt."""

    kind: str
    title: str
    css: str
    lines: Sequence[str] = ()
    doubts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Screen:
    """A card with its table and charts; ``folded`` is the rest of the table.

    The charts that ``lead`` stand before the table, with ``lines`` on the load below them.
    """

    card: Card
    table: Table
    charts: Sequence[Chart]
    folded: Table | None = None
    folded_title: str = ""
    lead: Sequence[Chart] = ()
    lines: Sequence[str] = ()


def judged_screen(
    trials: Sequence[Trial],
    runs: Sequence[NamedRun],
    slo: SLO | None,
    looks: Looks,
    charts: Charts,
) -> Screen:
    """Return the verdict on predictions, predicted and measured figures, and a chart of both."""
    card = _verdict_card(trials, [slo_line(runs, slo)] if slo else [])
    trials = sorted(trials, key=lambda trial: -SEVERITY.index(trial.comparison.outcome))
    worst_trial, first, rest = trials[0], trials[:MOST_TRIALS], trials[MOST_TRIALS:]
    both = {one.name: one.run.requests for one in (worst_trial.predicted, *worst_trial.measured)}
    name = f": {worst_trial.name}" if len(trials) > 1 else ""
    latency = curves.latency_cdf(both, "ttft_s", looks)
    return Screen(
        card,
        tables.judged_table(first),
        [
            charts.place(f"TTFT, predicted and measured{name}", latency),
            charts.place("Error of the prediction, and its limit", _errors(first)),
        ],
        tables.judged_table(rest) if rest else None,
        f"{len(rest)} more",
    )


def plain_screen(
    runs: Sequence[NamedRun], slo: SLO | None, looks: Looks, charts: Sequence[Chart]
) -> Screen:
    """Return the figures of runs without a verdict, which of several is best, and their doubts."""
    lines = [slo_line(runs, slo)] if slo else []
    doubtful = list(_doubts(runs))
    if len(runs) == 1:
        kind = "Measured" if runs[0].run.kind == "loadtest" else "Predicted"
        title, table = _figures_in_words(runs[0]), tables.figures_table(runs[0], slo)
        if verdict := runs[0].verdict:
            card = Card(kind, verdict, css_of(verdict), [title, *lines], doubtful)
            return Screen(card, table, charts)
    else:
        kind, title, table = "Compared", _best_in_words(runs), tables.runs_table(runs, looks, slo)
        lines += _different_load(runs)
    css = "unsure" if doubtful else "quiet"
    return Screen(Card(kind, title, css, lines, doubtful), table, charts)


def sweep_screen(name: str, sweep: Sweep, charts: Charts) -> Screen:
    """Return the knee of a sweep over load levels, its table and curves."""
    placed = [
        charts.place(title, figure, printed=place < _PRINTED_CURVES)
        for place, (title, figure) in enumerate(level_curves(sweep))
    ]
    lead, more = placed[:_PRINTED_CURVES], placed[_PRINTED_CURVES:]
    verdict = str(level_sweep.sweep_verdict(sweep))
    lines = [*level_sweep.knee_sentences(sweep), f"ended: {sweep.ended or 'not yet'}"]
    card = Card(f"Load levels: {name}", verdict, css_of(verdict), lines)
    table, sent = level_sweep.sweep_table(sweep), [*level_sweep.load_lines(sweep)]
    return Screen(card, table, more, lead=lead, lines=sent)


def css_of(verdict: str) -> str:
    """Return the class of the verdict of a load test."""
    return {"PASS": "good", "FAIL": "bad"}.get(verdict.partition(":")[0], "unsure")


def _doubts(runs: Sequence[NamedRun]) -> Iterator[str]:
    for named in runs:
        name = f"{named.name}: " if len(runs) > 1 else ""
        yield from (f"{name}{doubt}" for doubt in doubts(named.run))


def _verdict_card(trials: Sequence[Trial], more: Sequence[str]) -> Card:
    outcome = worst(one.comparison.outcome for one in trials)
    words = {one.name: " ".join(verdict_in_words(one.comparison, one.noun)) for one in trials}
    lines = [
        f"{name}: {verdict}" if len(trials) > 1 else _because(verdict)
        for name, verdict in words.items()
    ]
    title = WORDS["titles"][outcome]
    return Card("Verdict", title, tables.OUTCOME_CLASSES[outcome], [*lines, *more])


def _because(verdict: str) -> str:
    """Return the reasons of a verdict without the verdict itself, which is the title."""
    return _VERDICT.sub(lambda match: match[1].upper(), verdict)


def _errors(trials: Sequence[Trial]) -> canvas.Figure:
    """Draw the error of each judged metric; of several trials, under the name of each."""
    frames = []
    for trial in trials:
        frames.append(tables.error_rows([row for row in trial.comparison.metrics if row.limit]))
        if len(trials) > 1:
            frames[-1]["metric"] += f", {trial.name}"
    return agreement.errors_with_intervals(pd.concat(frames, ignore_index=True))


def _figures_in_words(named: NamedRun) -> str:
    """Return ``TTFT p90 708 ms, TPOT p90 98.3 ms, 135 tokens/s``."""
    summary = named.run.summary()
    latencies = []
    for name in ("ttft_s", "tpot_s"):
        value = summary[name][_SHOWN_QUANTILE]
        metric = METRICS[name].fitting([value])
        if value is not None:
            shown = number(value, metric.factor)
            latencies.append(f"{metric.label} {_SHOWN_QUANTILE} {shown} {metric.unit}")
    tokens_per_s = number(summary["output_throughput_tokens_per_s"], 1.0)
    return ", ".join([*latencies, f"{tokens_per_s} output tokens/s"])


def _best_in_words(runs: Sequence[NamedRun]) -> str:
    """Return which run has the shortest TTFT and which the longest."""
    summaries = ((named.name, named.run.summary()) for named in runs)
    ttfts = {name: of["ttft_s"][_SHOWN_QUANTILE] for name, of in summaries}
    ttfts = {name: ttft_s for name, ttft_s in ttfts.items() if ttft_s is not None}
    if not ttfts:
        return "No request finished"
    metric = METRICS["ttft_s"].fitting(ttfts.values())
    quickest, slowest = min(ttfts, key=ttfts.__getitem__), max(ttfts, key=ttfts.__getitem__)
    shown = {name: f"{number(ttfts[name], metric.factor)} {metric.unit}" for name in ttfts}
    if ttfts[quickest] == ttfts[slowest]:
        return f"{metric.label} {_SHOWN_QUANTILE} is {shown[quickest]} in all runs"
    return (
        f"{quickest} answers first: {metric.label} {_SHOWN_QUANTILE} {shown[quickest]}; "
        f"{slowest} last: {shown[slowest]}"
    )


def _different_load(runs: Sequence[NamedRun]) -> Iterator[str]:
    first, *others = runs
    other = [named.name for named in others if not same_requests(first.run, named.run)]
    if other:
        yield (
            f"Different requests or arrival times than {first.name}: {', '.join(other)}; part of "
            "the difference comes from the load."
        )
