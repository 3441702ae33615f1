"""The charts of runs: all of them for a report, and the one that ``--plot`` draws."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pandas as pd

from servetwin.app.figures import canvas, curves, over_time, stacked_bars, timeline
from servetwin.app.figures.canvas import Looks
from servetwin.app.reports.report_folders import NamedRun
from servetwin.app.words import METRICS
from servetwin.sim.records.metrics import LATENCIES, SLO
from servetwin.sim.records.tasks import task_of
from servetwin.workloads.errors import ServetwinError

# With more runs than these there are no timelines of single requests.
MOST_TIMELINES = 4

_DISTRIBUTIONS, _OVER_TIME, _REQUESTS = "Distributions", "Over time", "Requests and memory"

# Draws runs; returns None where they have nothing to draw.
_Draw = Callable[[Sequence[NamedRun], Looks, SLO], canvas.Figure | None]


def run_charts(
    runs: Sequence[NamedRun], looks: Looks, slo: SLO
) -> Iterator[tuple[str, str, canvas.Figure]]:
    """Yield section, title and figure of each chart, section by section."""
    for section, title, draw in _CHARTS.values():
        if (figure := draw(runs, looks, slo)) is not None:
            yield section, title, figure
    if len(runs) <= MOST_TIMELINES:
        for named in runs:
            figure = timeline.gantt(named.run.requests, named.name)
            yield _REQUESTS, f"Requests of {named.name}", figure
            if (task := task_of(named.run.requests)) is not None:
                yield _REQUESTS, f"The slowest task of {named.name}", timeline.swim_lanes(task)
    steps = {named.name: named.run.steps for named in runs if "live_tokens" in named.run.steps}
    if bars := {name: stacked_bars.mean_kv_parts(of) for name, of in steps.items()}:
        yield _REQUESTS, "KV memory, mean over the run", stacked_bars.memory_bar(bars, "tokens")


def run_figure(chart: str | None, runs: Sequence[NamedRun], slo: SLO | None) -> canvas.Figure:
    """Return a chart of runs, by default the distribution of TTFT.

    Raises ``ServetwinError`` where the runs have nothing for it.
    """
    if chart == "requests":
        return timeline.gantt(runs[0].run.requests)
    _, _, draw = _CHARTS[chart or "ttft"]
    figure = draw(runs, canvas.looks(named.name for named in runs), slo or SLO())
    if figure is None:
        raise ServetwinError(f"--chart {chart}: these runs do not know what their server did")
    return figure


def server_state(named: NamedRun) -> pd.DataFrame:
    """Return the server over time: steps of a simulation, or scraped metrics of a load test."""
    run = named.run
    if run.kind == "loadtest":
        return named.server if named.server is not None else pd.DataFrame()
    pools = isinstance(run.scenario.get("profile"), list)
    kv_tokens = None if pools else run.scenario.get("policies", {}).get("kv_tokens")
    return over_time.state_of_steps(run.steps, kv_tokens)


def _latency(draw: Callable[..., canvas.Figure], metric: str) -> _Draw:
    return lambda runs, looks, slo: draw(_requests(runs), metric, looks, getattr(slo, metric))


def _gaps(runs: Sequence[NamedRun], looks: Looks, _: SLO) -> canvas.Figure | None:
    chunked = {name: of for name, of in _measured(runs).items() if "chunk_s" in of}
    return curves.chunk_gap_cdf(chunked, looks) if chunked else None


def _throughput(runs: Sequence[NamedRun], looks: Looks, _: SLO) -> canvas.Figure:
    return over_time.throughput_over_time(_requests(runs), looks)


def _lag(runs: Sequence[NamedRun], looks: Looks, _: SLO) -> canvas.Figure | None:
    measured = _measured(runs)
    return over_time.schedule_lag(measured, looks) if measured else None


def _server(runs: Sequence[NamedRun], looks: Looks, _: SLO) -> canvas.Figure | None:
    states = {named.name: state for named in runs if len(state := server_state(named))}
    return over_time.server_over_time(states, looks) if states else None


def _requests(runs: Sequence[NamedRun]) -> dict[str, pd.DataFrame]:
    return {named.name: named.run.requests for named in runs}


def _measured(runs: Sequence[NamedRun]) -> dict[str, pd.DataFrame]:
    return _requests([named for named in runs if named.run.kind == "loadtest"])


def _label(metric: str) -> str:
    return METRICS[metric].label


# Section, title and figure of each chart, by its name on the command line.
_CHARTS: Mapping[str, tuple[str, str, _Draw]] = {
    **{
        name.removesuffix("_s"): (
            _DISTRIBUTIONS, f"Distribution of {_label(name)}", _latency(curves.latency_cdf, name)
        )
        for name in LATENCIES
    },
    "gaps": (_DISTRIBUTIONS, "Chunk gaps (ITL)", _gaps),
    **{
        f"{name[:-2]}-over-time": (
            _OVER_TIME, f"{_label(name)} over time", _latency(over_time.latency_over_time, name)
        )
        for name in LATENCIES[:2]
    },
    "throughput": (_OVER_TIME, "Output throughput over time", _throughput),
    "lag": (_OVER_TIME, "Schedule lag: how late the client was", _lag),
    "server": (_OVER_TIME, "Requests running and waiting, and KV memory", _server),
}  # fmt: skip
