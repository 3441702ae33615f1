"""The chart of runs that ``--plot`` draws."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from servetwin.app import figures
from servetwin.app.figures.palette import Looks
from servetwin.app.reports.html.run_charts import server_state
from servetwin.app.reports.pictures.command_line import command_line
from servetwin.app.reports.pictures.picture_file import PictureError, PictureFile
from servetwin.app.reports.pictures.talk_size import Caption
from servetwin.app.reports.report_folders import NamedRun
from servetwin.app.reports.run_words import source_line
from servetwin.app.scenario.options.common import PictureOptions, RunChart
from servetwin.sim.records.metrics import SLO

_Draw = Callable[[Sequence[NamedRun], Looks, SLO], figures.Figure]


def draw_runs(
    file: PictureFile, options: PictureOptions, runs: Sequence[NamedRun], slo: SLO | None
) -> str:
    """Draw the chart of the options to a file, and return a line about it.

    Below its title stand the source, and the command that draws it again. Raises ``PictureError``
    where the runs have nothing for that chart.
    """
    figure = run_figure(options.chart or RunChart.ttft, runs, slo or SLO())
    caption = Caption(source_line([named.run for named in runs]), command_line())
    size_bytes = file.draw(figure, caption)
    return f"picture: {file.path}, {size_bytes / 1e3:,.0f} kB"


def run_figure(chart: RunChart, runs: Sequence[NamedRun], slo: SLO) -> figures.Figure:
    """Return the figure that pages and reports draw of these runs."""
    return _CHARTS[chart](runs, figures.looks(named.name for named in runs), slo)


def _distribution(metric: str, runs: Sequence[NamedRun], looks: Looks, slo: SLO) -> figures.Figure:
    return figures.latency_cdf(_requests(runs), metric, looks, getattr(slo, metric))


def _over_time(metric: str, runs: Sequence[NamedRun], looks: Looks, slo: SLO) -> figures.Figure:
    return figures.latency_over_time(_requests(runs), metric, looks, getattr(slo, metric))


def _throughput(runs: Sequence[NamedRun], looks: Looks, _: SLO) -> figures.Figure:
    return figures.throughput_over_time(_requests(runs), looks)


def _server(runs: Sequence[NamedRun], looks: Looks, _: SLO) -> figures.Figure:
    states = {named.name: state for named in runs if len(state := server_state(named))}
    if not states:
        raise PictureError(
            f"--chart {RunChart.server}: these runs do not know what their server did"
        )
    return figures.server_over_time(states, looks)


def _gantt(runs: Sequence[NamedRun], _: Looks, __: SLO) -> figures.Figure:
    return figures.gantt(runs[0].run.requests)


def _requests(runs: Sequence[NamedRun]) -> Mapping[str, figures.Figure]:
    return {named.name: named.run.requests for named in runs}


_CHARTS: Mapping[RunChart, _Draw] = {
    RunChart.ttft: partial(_distribution, "ttft_s"),
    RunChart.tpot: partial(_distribution, "tpot_s"),
    RunChart.e2e: partial(_distribution, "e2e_s"),
    RunChart.ttft_over_time: partial(_over_time, "ttft_s"),
    RunChart.tpot_over_time: partial(_over_time, "tpot_s"),
    RunChart.throughput: _throughput,
    RunChart.server: _server,
    RunChart.requests: _gantt,
}
