"""One self-contained HTML file for a run, or for several side by side."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

import pandas as pd

from app import figures
from app.html.charts import POLICY, Charts
from app.html.elements import Child, document, element
from app.html.facts import facts, glossary, scenarios, slo_verdict, what_ran_short
from app.html.level_sweep import level_sweep_section
from app.html.run_charts import run_charts
from app.html.tables import OUTCOME_CLASSES, comparison_table, latency_table, totals_table
from app.text.assets import asset
from app.text.metric_labels import METRICS
from app.text.report_folders import NamedRun, Trial
from app.text.tables import capacity_line, judged_line
from app.text.waterfall import WHY_TITLE, waterfall_sentences
from app.twin.resimulate import resimulate_as_sent
from loadtest.report.comparison import Comparison, RequestDifferences, compare_requests
from loadtest.report.comparison_report import render_requests, verdict_in_words
from loadtest.sweep.sweep import Sweep
from sim.records.metrics import LATENCIES, SLO
from sim.records.run import Run
from workloads.errors import ServetwinError

NO_SWEEPS: Mapping[str, Sweep] = {}


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
        self._runs = runs
        self._trials = trials
        self._slo = slo
        self._sweeps = sweeps
        self._looks = figures.looks(named.name for named in runs)
        self._charts = Charts()

    def html(self) -> str:
        """Return the whole file."""
        only = self._runs[0].run
        ran = what_ran_short(only.kind, only.scenario)
        title = ran if len(self._runs) == 1 else f"{len(self._runs)} runs"
        head = [
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=POLICY),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("link", rel="icon", href="data:,"),
            element("title", f"Servetwin: {title}"),
            element("style", asset("report.css")),
        ]
        sections = [
            self._opening(title),
            *(level_sweep_section(name, of, self._charts) for name, of in self._sweeps.items()),
            self._tables(),
            *self._charted(),
            *(self._trial(trial) for trial in self._trials),
            scenarios(self._runs),
            glossary(),
        ]
        return document(head, [element("main", *sections), *self._charts.scripts()])

    def _opening(self, title: str) -> ET.Element:
        """Return the verdicts before all else, then what each run was."""
        verdicts = [said for trial in self._trials for said in _verdicts(trial)]
        if self._slo:
            verdicts += [slo_verdict(named, self._slo) for named in self._runs]
        return element(
            "section",
            element("h1", title[:1].upper() + title[1:]),
            *verdicts,
            element("p", id="chart-problem", class_="bad"),
            element("noscript", "The charts need JavaScript; the tables are complete."),
            *(facts(named, self._looks[named.name]) for named in self._runs),
        )

    def _tables(self) -> ET.Element:
        return element(
            "section",
            element("h2", "Latency and throughput"),
            latency_table(self._runs, self._looks),
            totals_table(self._runs, self._looks, self._slo),
        )

    def _charted(self) -> Iterator[ET.Element]:
        charts = run_charts(self._runs, self._looks, self._slo or SLO())
        for section, of_section in groupby(charts, key=itemgetter(0)):
            yield _section(section, [self._charts.place(*drawn) for _, *drawn in of_section])

    def _trial(self, trial: Trial) -> ET.Element:
        """Return predicted against measured, request by request, and again on the recorded send
        times."""
        measured = {named.name: named.run for named in trial.measured}
        differences = {
            name: compare_requests(trial.predicted.run, run) for name, run in measured.items()
        }
        return element(
            "section",
            element("h2", f"Predicted against measured: {trial.predicted.name}"),
            element("p", f"{trial.load}."),
            *_compared(trial),
            *(_in_words(name, found) for name, found in differences.items()),
            *self._why(trial),
            self._agreement(trial.predicted.run, measured, differences),
            *(self._as_sent(trial.predicted, named) for named in trial.measured),
        )

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
            return element("section", title, element("p", f"not possible: {error}"))
        explained = element(
            "p",
            "The same policies on the recorded send times, prompt and output lengths, one "
            "simulation; latencies of both sides count from when a request was sent, so TTFT is "
            "TTFT from sent here.",
        )
        return element("section", title, explained, comparison_table(found.comparison))


def _section(title: str, drawn: Sequence[Child]) -> ET.Element:
    return element("section", element("h2", title), element("div", *drawn, class_="charts"))


def _verdicts(trial: Trial) -> Iterator[ET.Element]:
    if trial.capacity:
        yield _verdict(f"{trial.predicted.name}, capacity", trial.capacity, trial.noun)
    yield _verdict(trial.predicted.name, trial.comparison, trial.noun)


def _verdict(name: str, found: Comparison, noun: str) -> ET.Element:
    said = " ".join(verdict_in_words(found, noun))
    return element("p", f"{name}: {said}", class_=OUTCOME_CLASSES[found.outcome])


def _compared(trial: Trial) -> Iterator[ET.Element]:
    """Yield the capacity where it was measured, the verdict's table, and the steady part."""
    if trial.capacity:
        yield comparison_table(trial.capacity, capacity_line(trial.capacity.repeats))
    yield comparison_table(trial.comparison)
    judged, steady = judged_line(trial.steady_part), trial.steady
    yield comparison_table(steady, judged) if steady else element("p", judged)


def _with_arrivals(found: RequestDifferences, requests: pd.DataFrame) -> pd.DataFrame:
    return found.frame.merge(requests[["request_id", "scheduled_s"]], on="request_id")


def _in_words(name: str, found: RequestDifferences) -> ET.Element:
    return element("pre", f"{name}, {render_requests(found)}")
