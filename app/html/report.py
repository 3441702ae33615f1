"""One self-contained HTML file for a run, or for several side by side."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pandas as pd

from app import figures
from app.html.charts import POLICY, Charts, asset
from app.html.elements import Child, document, element
from app.html.facts import facts, glossary, scenarios, slo_verdict, what_ran_short
from app.html.tables import OUTCOME_CLASSES, comparison_table, latency_table, totals_table
from app.text.metric_labels import METRICS
from app.text.report_folders import NamedRun, Trial
from app.twin.resimulate import resimulate_as_sent
from loadtest.report.comparison import RequestDifferences, compare_requests
from loadtest.report.comparison_report import render_requests, verdict_in_words
from sim.records.metrics import LATENCIES, SLO
from sim.records.run import Run
from workloads.errors import ServetwinError

MOST_TIMELINES = 4
"""With more runs than these there are no timelines of single requests."""


def render_html(runs: Sequence[NamedRun], trials: Sequence[Trial], slo: SLO | None = None) -> str:
    """Return a page that needs no other file and no network: runs, and the ``trials`` among them.

    All texts, of traces too, are escaped. About 2 MB, of which 10,000 requests are a tenth.
    """
    return _Page(runs, trials, slo).html()


class _Page:
    """Sections in the order in which people read, sharing charts and looks."""

    def __init__(self, runs: Sequence[NamedRun], trials: Sequence[Trial], slo: SLO | None) -> None:
        self._runs = runs
        self._trials = trials
        self._slo = slo
        self._limits = slo or SLO()
        self._looks = figures.looks(named.name for named in runs)
        self._charts = Charts()
        self._requests = {named.name: named.run.requests for named in runs}
        self._measured = {n.name: n.run.requests for n in runs if n.run.kind == "loadtest"}

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
            self._tables(),
            self._distributions(),
            self._over_time(),
            *self._timelines(),
            *(self._trial(trial) for trial in self._trials),
            scenarios(self._runs),
            glossary(),
        ]
        return document(head, [element("main", *sections), *self._charts.scripts()])

    def _opening(self, title: str) -> ET.Element:
        """Return the verdicts before all else, then what each run was."""
        verdicts = [_verdict(trial) for trial in self._trials]
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

    def _distributions(self) -> ET.Element:
        drawn = []
        for name in LATENCIES:
            found = figures.latency_cdf(self._requests, name, self._looks, self._limit_s(name))
            title = f"{METRICS[name].label}: share of requests within it"
            drawn.append(self._charts.place(title, found))
        if self._measured:
            gaps = figures.chunk_gap_cdf(self._measured, self._looks)
            drawn.insert(2, self._charts.place("Chunk gaps (ITL)", gaps))
        return _section("Distributions", drawn)

    def _over_time(self) -> ET.Element:
        looks, place = self._looks, self._charts.place
        drawn = []
        for name in ("ttft_s", "tpot_s"):
            found = figures.latency_over_time(self._requests, name, looks, self._limit_s(name))
            drawn.append(place(f"{METRICS[name].label} over time", found))
        throughput = figures.throughput_over_time(self._requests, looks)
        drawn.append(place("Output throughput over time", throughput))
        if self._measured:
            lag = figures.schedule_lag(self._measured, looks)
            drawn.append(place("Schedule lag: how late the client was", lag))
        if states := {n.name: state for n in self._runs if len(state := server_state(n))}:
            title = "Requests running and waiting, and KV memory"
            drawn.append(place(title, figures.server_over_time(states, looks)))
        return _section("Over time", drawn)

    def _timelines(self) -> list[ET.Element]:
        drawn: list[ET.Element] = []
        if len(self._runs) <= MOST_TIMELINES:
            for named in self._runs:
                chart = figures.gantt(named.run.requests)
                drawn.append(self._charts.place(f"Requests of {named.name}", chart))
        bars = {
            named.name: figures.mean_kv_parts(named.run.steps)
            for named in self._runs
            if "live_tokens" in named.run.steps
        }
        if bars:
            chart = figures.memory_bar(bars, "tokens")
            drawn.append(self._charts.place("KV memory, mean over the run", chart))
        return [_section("Requests and memory", drawn)] if drawn else []

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
            comparison_table(trial.comparison),
            *(_in_words(name, found) for name, found in differences.items()),
            self._agreement(trial.predicted.run, measured, differences),
            *(self._as_sent(trial.predicted, named) for named in trial.measured),
        )

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

    def _limit_s(self, metric: str) -> float | None:
        limit_s: float | None = getattr(self._limits, metric)
        return limit_s


def _section(title: str, drawn: Sequence[Child]) -> ET.Element:
    return element("section", element("h2", title), element("div", *drawn, class_="charts"))


def _verdict(trial: Trial) -> ET.Element:
    said = " ".join(verdict_in_words(trial.comparison))
    class_ = OUTCOME_CLASSES[trial.comparison.outcome]
    return element("p", f"{trial.predicted.name}: {said}", class_=class_)


def server_state(named: NamedRun) -> pd.DataFrame:
    """Return the server over time: steps of a simulation, or scraped metrics of a load test."""
    run = named.run
    if run.kind == "loadtest":
        return named.server if named.server is not None else pd.DataFrame()
    pools = isinstance(run.scenario.get("profile"), list)
    kv_tokens = None if pools else run.scenario.get("policies", {}).get("kv_tokens")
    return figures.state_of_steps(run.steps, kv_tokens)


def _with_arrivals(found: RequestDifferences, requests: pd.DataFrame) -> pd.DataFrame:
    return found.frame.merge(requests[["request_id", "scheduled_s"]], on="request_id")


def _in_words(name: str, found: RequestDifferences) -> ET.Element:
    return element("pre", f"{name}, {render_requests(found)}")
