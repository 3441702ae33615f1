"""One self-contained HTML file for a run, or for several side by side."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import pandas as pd

from servetwin.app import figures
from servetwin.app.reports.claims import render_requests
from servetwin.app.reports.html.charts import POLICY, Charts
from servetwin.app.reports.html.elements import Child, document, element, folded
from servetwin.app.reports.html.facts import about, facts, slo_line, what_ran_short
from servetwin.app.reports.html.first_screen import judged_screen, plain_screen
from servetwin.app.reports.html.level_sweep import level_sweep_section
from servetwin.app.reports.html.provenance import provenance
from servetwin.app.reports.html.run_charts import run_charts
from servetwin.app.reports.html.tables import comparison_table, latency_table, totals_table
from servetwin.app.reports.report_folders import NamedRun, Trial
from servetwin.app.reports.run_words import run_without_paths, without_paths
from servetwin.app.reports.tables import capacity_line, judged_line
from servetwin.app.reports.verdict import WHY_TITLE, waterfall_sentences
from servetwin.app.verdict.claims import RequestDifferences, compare_requests
from servetwin.app.verdict.resimulate import resimulate_as_sent
from servetwin.app.words import METRICS, asset
from servetwin.loadtest.sweep.sweep import Sweep
from servetwin.sim.records.metrics import LATENCIES, SLO
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import ServetwinError

NO_SWEEPS: Mapping[str, Sweep] = {}
Drawn = tuple[str, str, figures.Figure]
"""Section, title and figure of a chart."""
_FIRST_CHARTS = 2
_MOST_FACTS = 6
"""More runs than these are folded where the page says what each rests on."""


def render_html(
    runs: Sequence[NamedRun],
    trials: Sequence[Trial],
    slo: SLO | None = None,
    sweeps: Mapping[str, Sweep] = NO_SWEEPS,
) -> str:
    """Return a page that needs no other file and no network: runs, and the ``trials`` among them.

    ``sweeps`` are those over load levels, by name, whose levels are among the runs. All texts, of
    traces too, are escaped. About 2 MB, of which 10,000 requests are a tenth.
    """
    return _Page(runs, trials, slo, sweeps).html()


class _Page:
    """Sections in the order in which people read, sharing charts and looks."""

    def __init__(
        self,
        runs: Sequence[NamedRun],
        trials: Sequence[Trial],
        slo: SLO | None,
        sweeps: Mapping[str, Sweep],
    ) -> None:
        self._runs = [replace(named, run=run_without_paths(named.run)) for named in runs]
        self._trials = trials
        self._slo = slo
        self._sweeps = sweeps
        self._looks = figures.looks(named.name for named in runs)
        self._charts = Charts()

    def html(self) -> str:
        """Return the whole file."""
        title = _title(self._runs, self._trials, self._sweeps)
        head = [
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=POLICY),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("link", rel="icon", href="data:,"),
            element("title", f"Servetwin: {title}"),
            element("style", asset("report.css")),
        ]
        drawn = list(run_charts(self._runs, self._looks, self._slo or SLO()))
        sections = [
            self._first_screen(title, drawn),
            self._rests(),
            self._tables(),
            *self._charted(drawn),
            *(self._trial(trial) for trial in self._trials),
            provenance(self._runs),
        ]
        return document(head, [element("main", *sections), *self._charts.scripts()])

    def _first_screen(self, title: str, drawn: list[Drawn]) -> ET.Element:
        """Return verdict, table and chart; charts that it takes from ``drawn`` are not repeated."""
        parts: list[Child] = [
            level_sweep_section(name, of, self._charts) for name, of in self._sweeps.items()
        ]
        if self._trials:
            said = [slo_line(self._runs, self._slo)] if self._slo else []
            parts += judged_screen(self._trials, said, self._looks, self._charts)
            if len(self._runs) == 1 + len(self._trials[0].measured):
                del drawn[0]  # the first screen has drawn it
        elif not self._sweeps:
            parts += plain_screen(self._runs, self._looks, self._slo)
            first, drawn[:_FIRST_CHARTS] = drawn[:_FIRST_CHARTS], []
            parts.append(self._placed(first))
        return element(
            "section",
            element("h1", title),
            element("p", about(self._runs), class_="quiet"),
            element("p", id="chart-problem", class_="bad"),
            element("noscript", "The charts need JavaScript; the tables are complete."),
            *parts,
        )

    def _rests(self) -> ET.Element:
        """Return what the figures rest on, run by run; of many runs, the rest is folded."""
        found = [facts(named, self._looks[named.name]) for named in self._runs]
        shown, rest = found[:_MOST_FACTS], found[_MOST_FACTS:]
        parts: list[Child] = [element("div", *shown, class_="facts")]
        if rest:
            parts.append(folded(f"{len(rest)} more", element("div", *rest, class_="facts")))
        return element("section", element("h2", "What it rests on"), *parts)

    def _tables(self) -> ET.Element:
        return element(
            "section",
            element("h2", "Latency and throughput"),
            latency_table(self._runs, self._looks),
            totals_table(self._runs, self._looks, self._slo),
            class_="screen",
        )

    def _charted(self, drawn: Sequence[Drawn]) -> Iterator[ET.Element]:
        for title, of_section in groupby(drawn, key=itemgetter(0)):
            placed = self._placed(list(of_section))
            yield element("section", element("h2", title), placed, class_="screen")

    def _placed(self, drawn: Sequence[Drawn]) -> ET.Element:
        places = [self._charts.place(title, figure) for _, title, figure in drawn]
        return element("div", *places, class_="charts")

    def _trial(self, trial: Trial) -> ET.Element:
        """Return predicted against measured, request by request, and again on the recorded send
        times."""
        measured = {named.name: named.run for named in trial.measured}
        differences = {
            name: compare_requests(trial.predicted.run, run) for name, run in measured.items()
        }
        return element(
            "section",
            element("h2", f"Predicted against measured: {trial.name}"),
            element("p", f"{trial.load}."),
            *self._compared(trial),
            *(_in_words(name, found) for name, found in differences.items()),
            *self._why(trial),
            self._agreement(trial.predicted.run, measured, differences),
            *(self._as_sent(trial.predicted, named) for named in trial.measured),
            class_="screen",
        )

    def _compared(self, trial: Trial) -> Iterator[ET.Element]:
        """Yield the table of the verdict, of which several trials showed a part, and the steady
        part."""
        if trial.capacity:
            yield comparison_table(trial.capacity, capacity_line(trial.capacity.repeats))
        if len(self._trials) > 1:
            yield comparison_table(trial.comparison)
        judged, steady = judged_line(trial.steady_part), trial.steady
        yield comparison_table(steady, judged) if steady else element("p", judged)

    def _why(self, trial: Trial) -> Iterator[ET.Element]:
        """Yield the causes of the error, in words and as a chart per latency."""
        if trial.why is None:
            return
        yield element("h3", WHY_TITLE)
        yield from (element("p", line) for line in waterfall_sentences(trial.why))
        effects = list(trial.why.effects())
        drawn = []
        for name, error in trial.why.predicted.items():
            parts = [(one.name, of[name] if of else None, one.note) for one, of in effects]
            chart = figures.error_waterfall(name, error, parts, trial.why.left[name])
            drawn.append(self._charts.place(f"{METRICS[name].label}, part by part", chart))
        yield element("div", *drawn, class_="charts")

    def _agreement(
        self, predicted: Run, measured: dict[str, Run], differences: dict[str, RequestDifferences]
    ) -> ET.Element:
        frames = {name: run.requests for name, run in measured.items()}
        off = {name: _with_arrivals(found, frames[name]) for name, found in differences.items()}
        drawn = []
        for name in LATENCIES:
            label = METRICS[name].label
            agreement = figures.predicted_against_measured(
                predicted.requests, frames, name, self._looks
            )
            drawn.append(self._charts.place(f"{label}, percentile by percentile", agreement))
            over_time = figures.differences_over_time(off, name, self._looks)
            drawn.append(self._charts.place(f"{label}, request by request", over_time))
        return element("div", *drawn, class_="charts")

    def _as_sent(self, predicted: NamedRun, measured: NamedRun) -> ET.Element:
        title = element("h3", f"Simulated again on what was really sent: {measured.name}")
        try:
            found = resimulate_as_sent(predicted.run, measured.run)
        except ServetwinError as error:
            return element(
                "section", title, element("p", f"not possible: {without_paths(str(error))}")
            )
        explained = element(
            "p",
            "The same policies on the recorded send times, prompt and output lengths, one "
            "simulation; latencies of both sides count from when a request was sent, so TTFT is "
            "TTFT from sent here.",
        )
        return element("section", title, explained, comparison_table(found.comparison))


def _with_arrivals(found: RequestDifferences, requests: pd.DataFrame) -> pd.DataFrame:
    return found.frame.merge(requests[["request_id", "scheduled_s"]], on="request_id")


def _in_words(name: str, found: RequestDifferences) -> ET.Element:
    return element("pre", f"{name}, {render_requests(found)}")


def _title(runs: Sequence[NamedRun], trials: Sequence[Trial], sweeps: Mapping[str, Sweep]) -> str:
    """Return what the page is about."""
    kinds = list(dict.fromkeys(what_ran_short(of.run.kind, of.run.scenario) for of in runs))
    if trials:
        predicted = trials[0].predicted.run
        return f"Predicted and measured: {what_ran_short(predicted.kind, predicted.scenario)}"
    if sweeps:
        return f"Sweep over load levels: {kinds[0]}"
    if len(runs) > 1:
        return f"{len(runs)} runs compared"
    return kinds[0][:1].upper() + kinds[0][1:]
