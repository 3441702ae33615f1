"""The charts of runs: all of them for a report, and the one that ``--plot`` draws."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pandas as pd

from servetwin.app import figures
from servetwin.app.figures.palette import Looks
from servetwin.app.reports.report_folders import NamedRun
from servetwin.app.words import METRICS
from servetwin.sim.records.metrics import LATENCIES, SLO
from servetwin.workloads.errors import ServetwinError

MOST_TIMELINES = 4
"""With more runs than these there are no timelines of single requests."""

_DISTRIBUTIONS, _OVER_TIME, _REQUESTS = "Distributions", "Over time", "Requests and memory"


def run_charts(
    runs: Sequence[NamedRun], looks: Looks, slo: SLO
) -> Iterator[tuple[str, str, figures.Figure]]:
    """Yield section, title and figure of each chart, section by section."""
    requests = {named.name: named.run.requests for named in runs}
    measured = {named.name: named.run.requests for named in runs if named.run.kind == "loadtest"}
    for name in LATENCIES:
        figure = figures.latency_cdf(requests, name, looks, getattr(slo, name))
        yield _DISTRIBUTIONS, f"Distribution of {METRICS[name].label}", figure
    if chunked := {name: of for name, of in measured.items() if "chunk_s" in of}:
        yield _DISTRIBUTIONS, "Chunk gaps (ITL)", figures.chunk_gap_cdf(chunked, looks)
    for name in ("ttft_s", "tpot_s"):
        figure = figures.latency_over_time(requests, name, looks, getattr(slo, name))
        yield _OVER_TIME, f"{METRICS[name].label} over time", figure
    yield _OVER_TIME, "Output throughput over time", figures.throughput_over_time(requests, looks)
    if measured:
        lag = figures.schedule_lag(measured, looks)
        yield _OVER_TIME, "Schedule lag: how late the client was", lag
    if states := {named.name: state for named in runs if len(state := server_state(named))}:
        figure = figures.server_over_time(states, looks)
        yield _OVER_TIME, "Requests running and waiting, and KV memory", figure
    if len(runs) <= MOST_TIMELINES:
        for named in runs:
            yield _REQUESTS, f"Requests of {named.name}", figures.gantt(named.run.requests)
    steps = {named.name: named.run.steps for named in runs if "live_tokens" in named.run.steps}
    if bars := {name: figures.mean_kv_parts(of) for name, of in steps.items()}:
        yield _REQUESTS, "KV memory, mean over the run", figures.memory_bar(bars, "tokens")


def server_state(named: NamedRun) -> pd.DataFrame:
    """Return the server over time: steps of a simulation, or scraped metrics of a load test."""
    run = named.run
    if run.kind == "loadtest":
        return named.server if named.server is not None else pd.DataFrame()
    pools = isinstance(run.scenario.get("profile"), list)
    kv_tokens = None if pools else run.scenario.get("policies", {}).get("kv_tokens")
    return figures.state_of_steps(run.steps, kv_tokens)


_Draw = Callable[[Sequence[NamedRun], Looks, SLO], figures.Figure]


def run_figure(chart: str | None, runs: Sequence[NamedRun], slo: SLO | None) -> figures.Figure:
    """Return a chart of runs, by default the distribution of TTFT.

    Raises ``ServetwinError`` where the runs have nothing for it.
    """
    looks = figures.looks(named.name for named in runs)
    return _CHARTS[chart or "ttft"](runs, looks, slo or SLO())


def _distribution(metric: str, runs: Sequence[NamedRun], looks: Looks, slo: SLO) -> figures.Figure:
    return figures.latency_cdf(_requests(runs), metric, looks, getattr(slo, metric))


def _over_time(metric: str, runs: Sequence[NamedRun], looks: Looks, slo: SLO) -> figures.Figure:
    return figures.latency_over_time(_requests(runs), metric, looks, getattr(slo, metric))


def _throughput(runs: Sequence[NamedRun], looks: Looks, _: SLO) -> figures.Figure:
    return figures.throughput_over_time(_requests(runs), looks)


def _server(runs: Sequence[NamedRun], looks: Looks, _: SLO) -> figures.Figure:
    states = {named.name: state for named in runs if len(state := server_state(named))}
    if not states:
        raise ServetwinError("--chart server: these runs do not know what their server did")
    return figures.server_over_time(states, looks)


def _gantt(runs: Sequence[NamedRun], _: Looks, __: SLO) -> figures.Figure:
    return figures.gantt(runs[0].run.requests)


def _requests(runs: Sequence[NamedRun]) -> Mapping[str, figures.Figure]:
    return {named.name: named.run.requests for named in runs}


_CHARTS: Mapping[str, _Draw] = {
    "ttft": partial(_distribution, "ttft_s"),
    "tpot": partial(_distribution, "tpot_s"),
    "e2e": partial(_distribution, "e2e_s"),
    "ttft-over-time": partial(_over_time, "ttft_s"),
    "tpot-over-time": partial(_over_time, "tpot_s"),
    "throughput": _throughput,
    "server": _server,
    "requests": _gantt,
}
