"""Commands on runs that are kept: ``servetwin compare``, ``explain`` and ``report``."""

import json
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from servetwin.app.command import print_result
from servetwin.app.scenario.options import common
from servetwin.app.scenario.options.groups import takes_options
from servetwin.sim.records.run import RunError


@takes_options()
def compare(
    first: Annotated[
        Path,
        Argument(metavar="BASELINE", help="Run folder of loadtest or replay, or a folder of runs."),
    ],
    candidates: Annotated[list[Path], Argument(metavar="RUN...", help="Runs to judge, together.")],
    options: Annotated[common.GateOptions, ("baseline", "allow")],
    picture: common.PictureOptions,
    overwriting: common.Overwriting,
    gate: Annotated[
        bool, Option("--gate", help="Exit with 0 if the RUNs hold, 1 if refuted, 3 if unknown.")
    ] = False,
    as_json: common.Json = False,
) -> None:
    """Say whether RUNs are worse than a BASELINE of the same load by more than is allowed.

    All runs of a side count together. What is faster than the baseline holds. Without --gate the
    same requests may have gone to another model, or with other bodies; the report says so. Requests
    of a simulation and of a measured run are matched by their ids, or by their order.
    """
    sides = [first, *options.baseline], candidates
    plotted = picture.file(overwrite=overwriting.overwrite, runs=sum(map(len, sides)))
    from servetwin.app.reports.claims import render_gate
    from servetwin.app.reports.report_folders import runs_by_folder
    from servetwin.app.verdict.claims import EXIT_CODES
    from servetwin.app.verdict.gate import judge

    limits = options.limits()
    baselines, runs = (
        {str(folder): run for folder, run in runs_by_folder(folders).items()} for folders in sides
    )
    verdict = judge(baselines, runs, limits, asked_alike=gate)
    typer.echo(json.dumps(verdict.as_dict()) if as_json else render_gate(verdict))
    if plotted:
        from servetwin.app.reports.html.picture_file import draw_runs
        from servetwin.app.reports.report_folders import named_runs

        line = draw_runs(plotted, picture.chart, named_runs({**baselines, **runs}), None)
        typer.echo(line, err=as_json)
    if gate and (code := EXIT_CODES[verdict.outcome]):
        raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """Query of a run: one request, the slowest ones, or its timeline in a window."""

    request_id: Annotated[str | None, Argument(metavar="[ID]")] = None
    """The request to explain."""
    slowest: Annotated[int | None, Option(min=1)] = None
    """Explain the N requests of the longest latency."""
    trace_export: Annotated[Path | None, Option()] = None
    """Write a Chrome trace (JSON) that Perfetto opens."""
    start: Annotated[float | None, Option()] = None
    """Export from this second on."""
    end: Annotated[float | None, Option()] = None
    """Export up to this second."""

    def check(self) -> None:
        """Raise ``RunError`` unless it is one question, with a window that can be."""
        if (self.request_id, self.slowest, self.trace_export).count(None) != 2:
            raise RunError("explain: give one of a request ID, --slowest N or --trace-export FILE")
        if self.trace_export is None and (self.start, self.end) != (None, None):
            raise RunError("explain: --start and --end are the window of --trace-export")
        if self.start is not None and self.end is not None and not self.start < self.end:
            raise RunError(f"explain: --start {self.start:g} must be before --end {self.end:g}")


@takes_options()
def explain(
    run: Annotated[Path, Argument(help="Run folder, of replay --out or loadtest --out.")],
    query: ExplainQuery,
    as_json: common.Json = False,
) -> None:
    """Split the latency of requests of RUN into parts that sum to it, or export its timeline."""
    from servetwin.app.reports.explanation import as_dict, explanation_lines, slowest_lines
    from servetwin.sim.explain.explain import Explainer
    from servetwin.sim.records.run import load_run

    query.check()
    loaded = load_run(run)
    explainer = Explainer(loaded)
    if query.trace_export is not None:
        from servetwin.sim.explain.timeline import trace_events, write_trace

        path, start_s, end_s = query.trace_export, query.start, query.end
        window = (-inf if start_s is None else start_s, inf if end_s is None else end_s)
        count = write_trace(path, trace_events(loaded, explainer.spans, *window))
        line = f"{count} events: {path} (open it in https://ui.perfetto.dev)"
        print_result(as_json, {"file": str(path), "events": count}, [line])
    elif query.slowest is not None:
        slowest = explainer.slowest(query.slowest)
        print_result(as_json, list(map(as_dict, slowest)), slowest_lines(slowest))
    elif query.request_id is not None:
        one = explainer.explain(query.request_id)
        print_result(as_json, as_dict(one), explanation_lines(one))


def report(
    runs: Annotated[
        list[Path], Argument(metavar="RUN...", help="Folders of replay, loadtest or verify --out.")
    ],
    slo: Annotated[str | None, common.SLO] = None,
    out: Annotated[Path, Option(help="HTML file to write.")] = Path("report.html"),
    as_json: common.Json = False,
) -> None:
    """Write one self-contained HTML file: tables, charts, verdicts and scenarios of the RUNs.

    A prediction and load tests of the same requests are compared. A sweep of levels is shown as far
    as it went.
    """
    from servetwin.app.tasks.report import report as write_report

    write_report(runs, slo, out, as_json)
