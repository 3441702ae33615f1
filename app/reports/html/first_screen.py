"""The first screen of a report: the verdict as a card, its table, and the chart of both sides."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from servetwin.app import figures
from servetwin.app.figures.palette import Looks
from servetwin.app.reports.claims import verdict_in_words
from servetwin.app.reports.html.charts import Charts
from servetwin.app.reports.html.elements import Child, card, element, folded
from servetwin.app.reports.html.error_rows import error_rows
from servetwin.app.reports.html.facts import doubts, slo_line
from servetwin.app.reports.html.tables import (
    OUTCOME_CLASSES,
    figures_table,
    judged_table,
    runs_table,
)
from servetwin.app.reports.report_folders import NamedRun, Trial, same_load
from servetwin.app.verdict.claims import Comparison, Outcome, worst
from servetwin.app.words import METRICS, number
from servetwin.sim.records.metrics import SLO

MOST_TRIALS = 3
"""More trials than these are folded, the worst first."""
_TITLES: Mapping[Outcome, str] = {
    "holds": "The prediction holds",
    "refuted": "The prediction is refuted",
    "cannot tell": "Cannot tell",
}
_SEVERITY: tuple[Outcome, ...] = ("holds", "cannot tell", "refuted")
_SHOWN_QUANTILE = "p90"


def judged_screen(
    trials: Sequence[Trial], said: Sequence[Child], looks: Looks, charts: Charts
) -> Iterator[ET.Element]:
    """Yield the verdict on predictions: card, predicted and measured, and the chart of both.

    ``said`` joins the card.
    """
    first = sorted(trials, key=lambda trial: -_SEVERITY.index(_outcome(trial)))
    yield _verdict_card(trials, said)
    yield judged_table(first[:MOST_TRIALS])
    if rest := first[MOST_TRIALS:]:
        yield folded(f"{len(rest)} more", judged_table(rest))
    decisive = first[0]
    yield element(
        "div",
        charts.place(
            f"TTFT, predicted and measured{_of(decisive, trials)}", _both(decisive, looks)
        ),
        charts.place("Error of the prediction, and its limit", _errors(first[:MOST_TRIALS])),
        class_="charts",
    )


def plain_screen(runs: Sequence[NamedRun], looks: Looks, slo: SLO | None) -> Iterator[ET.Element]:
    """Yield the figures of runs that nothing judges, which of several is best, and their doubts."""
    said: list[Child] = [slo_line(runs, slo)] if slo else []
    doubtful = [*_doubts(runs)]
    if len(runs) == 1:
        kind = "Measured" if runs[0].run.kind == "loadtest" else "Predicted"
        title = _figures_in_words(runs[0])
    else:
        kind, title = "Compared", _best_in_words(runs)
        said += _different_load(runs)
    yield card(kind, title, "unsure" if doubtful else "quiet", *said, *doubtful)
    yield figures_table(runs[0], slo) if len(runs) == 1 else runs_table(runs, looks, slo)


def _doubts(runs: Sequence[NamedRun]) -> Iterator[ET.Element]:
    for named in runs:
        name = f"{named.name}: " if len(runs) > 1 else ""
        yield from (element("p", f"{name}{said}", class_="bad") for said in doubts(named.run))


def _verdict_card(trials: Sequence[Trial], more: Sequence[Child]) -> ET.Element:
    outcome = worst(map(_outcome, trials))
    judged = [one for trial in trials for one in _comparisons(trial)]
    said = [
        f"{name}: {in_words(trial, found)}" if len(judged) > 1 else _because(in_words(trial, found))
        for name, trial, found in judged
    ]
    return card("Verdict", _TITLES[outcome], OUTCOME_CLASSES[outcome], *said, *more)


def in_words(trial: Trial, found: Comparison) -> str:
    """Return a verdict in words."""
    return " ".join(verdict_in_words(found, trial.noun))


def _because(said: str) -> str:
    """Return the reasons of a verdict without the verdict itself, which is the title."""
    return re.sub(
        r"(?:The prediction holds|The prediction is REFUTED|Cannot tell): (\w)",
        lambda found: found[1].upper(),
        said,
    )


def _comparisons(trial: Trial) -> Iterator[tuple[str, Trial, Comparison]]:
    if trial.capacity:
        yield f"{trial.name}, capacity", trial, trial.capacity
    yield trial.name, trial, trial.comparison


def _outcome(trial: Trial) -> Outcome:
    return worst(found.outcome for _, _, found in _comparisons(trial))


def _of(decisive: Trial, trials: Sequence[Trial]) -> str:
    return f": {decisive.name}" if len(trials) > 1 else ""


def _both(trial: Trial, looks: Looks) -> figures.Figure:
    runs = (trial.predicted, *trial.measured)
    return figures.latency_cdf({one.name: one.run.requests for one in runs}, "ttft_s", looks)


def _errors(trials: Sequence[Trial]) -> figures.Figure:
    """Draw the error of each judged metric; of several trials, under the name of each."""
    frames = []
    for trial in trials:
        rows = [row for _, _, found in _comparisons(trial) for row in found.metrics if row.limit]
        frame = error_rows(rows)
        if len(trials) > 1:
            frame["metric"] = frame["metric"] + f", {trial.name}"
        frames.append(frame)
    return figures.errors_with_intervals(pd.concat(frames, ignore_index=True))


def _figures_in_words(named: NamedRun) -> str:
    """Return ``TTFT p90 708 ms, TPOT p90 98.3 ms, 135 tokens/s``."""
    summary = named.run.summary()
    said = []
    for name in ("ttft_s", "tpot_s"):
        value = summary[name][_SHOWN_QUANTILE]
        metric = METRICS[name].fitting([value])
        if value is not None:
            shown = number(value, metric.factor)
            said.append(f"{metric.label} {_SHOWN_QUANTILE} {shown} {metric.unit}")
    tokens_per_s = number(summary["output_throughput_tokens_per_s"], 1.0)
    return ", ".join([*said, f"{tokens_per_s} output tokens/s"])


def _best_in_words(runs: Sequence[NamedRun]) -> str:
    """Return which run has the shortest TTFT and which the highest throughput."""
    summaries = {named.name: named.run.summary() for named in runs}
    ttfts = {
        name: value
        for name, of in summaries.items()
        if (value := of["ttft_s"][_SHOWN_QUANTILE]) is not None
    }
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


def _different_load(runs: Sequence[NamedRun]) -> Iterator[Child]:
    first, *others = runs
    other = [named.name for named in others if not same_load(first.run, named.run)]
    if other:
        yield (
            f"Not the same requests at the same times as {first.name}: {', '.join(other)}; their "
            "figures differ by the load too."
        )
