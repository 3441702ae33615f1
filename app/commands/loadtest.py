"""``servetwin loadtest``: send a load to a live endpoint and see what clients see."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from app.commands.report import require_plotly, write_html
from app.scenario.common_options import SLO, Json, RunFolder, Seed
from app.scenario.endpoint_options import EndpointOptions, endpoint_line
from app.scenario.load_options import LoadChoice
from app.scenario.option_groups import takes_options
from app.text.load_report import as_json, as_sent, as_text, compared, complaint
from app.text.progress import progress
from app.text.progress_log import live_file
from app.text.saving import saved
from workloads.errors import LoadTestError

if TYPE_CHECKING:
    from loadtest.endpoint import Endpoint
    from loadtest.report.server_metrics import ServerWatch
    from loadtest.run.client import LoadOptions, OnProgress, Progress
    from sim.records.run import Run
    from workloads.trace import Trace


@takes_options
def loadtest(
    url: Annotated[str, Argument(help="LLM server, with or without /v1.")],
    load: LoadChoice,
    endpoint: EndpointOptions,
    against: Annotated[
        Path | None, Option(help="Run folder of a prediction to compare with.")
    ] = None,
    slo: Annotated[str | None, SLO] = None,
    timeout: Annotated[float, Option(help="Seconds for one request in all.", min=0.001)] = 600,
    processes: Annotated[
        int | None, Option(help="That share the load; default what its peak rate needs.", min=1)
    ] = None,
    html: Annotated[Path | None, Option(help="Also write the report as one HTML file.")] = None,
    live: Annotated[
        Path | None, Option(help="Also write the progress, one JSON line a second.")
    ] = None,
    seed: Seed = 0,
    out: RunFolder = None,
    json: Json = False,
) -> None:
    """Send a trace, generated arrivals or users to URL, and report what every client saw.

    The API key, where one is needed, comes from an environment variable.
    """
    from loadtest.plan.context_limit import within_context
    from loadtest.report.server_metrics import watch_server
    from loadtest.report.slo import parse_slo
    from loadtest.report.token_count_warnings import prompt_lengths_note
    from loadtest.run.stop_signals import signals_deferred

    if html:
        require_plotly()
    limits = parse_slo(slo) if slo else None
    load = replace(load, seed=seed)
    sending = load.options(timeout_s=timeout, processes=processes)
    requests = load.trace()
    probed = endpoint.probe(url)
    too_long = endpoint.on_too_long
    requests = within_context(requests, probed, too_long.value if too_long else None)
    predicted = _prediction(against, requests, sending)
    typer.echo(endpoint_line(probed), err=True)
    folder = _new_folder(out or Path("runs") / time.strftime("loadtest-%Y%m%d-%H%M%S"))
    _keep(requests if load.is_made else None, folder)
    with watch_server(probed.base_url) as watch, live_file(live) as show:
        run = _run(probed, requests, sending, show)
    run.scenario |= {"seed": seed, "load": load.record()}
    if note := prompt_lengths_note(run.requests, requests):
        run.scenario["notes"].append(note)
    with signals_deferred(), saved(run, folder) as kept:
        typer.echo(_server_said(watch, run, kept), err=True)
        found = compared(run, predicted) if predicted else None
        typer.echo((as_json if json else as_text)(run, limits, kept, found))
        if predicted and not json:
            typer.echo("\n" + as_sent(predicted, run, requests))
        if wrong := complaint(run, found, kept):
            typer.echo(f"servetwin: {wrong[0]}", err=True)
        if html:
            write_html([kept, *([against] if against else [])], slo, html)
        if wrong:
            raise typer.Exit(wrong[1])


def _server_said(watch: "ServerWatch", run: "Run", folder: Path) -> str:
    """Return one line on the scraped metrics; an unwritable file is reported there."""
    from loadtest.report.server_metrics import save_server_metrics
    from sim.records.run import RunError

    try:
        return save_server_metrics(watch, run, folder)
    except RunError as error:
        return f"server metrics: not kept ({error})"


def _prediction(against: Path | None, trace: "Trace", load: "LoadOptions") -> "Run | None":
    """Return the prediction to compare with; a wrong one is refused before anything is sent."""
    from loadtest.report.comparison import check_same_load
    from sim.records.run import load_run

    if against is None:
        return None
    if load.cancellation:
        raise LoadTestError("--against and --cancel: no simulated client hangs up; leave one out")
    if load.endless:
        raise LoadTestError(
            "--against: users that send until --duration send as many as the server is fast, and a "
            "prediction is of requests that are known; give --limit N"
        )
    predicted = load_run(against)
    check_same_load(predicted, trace, closed_loop=load.follows(trace))
    predicted.requests["warm_up"] = predicted.requests["scheduled_s"] < load.warm_up_s
    return predicted


def _new_folder(folder: Path) -> Path:
    """Make the run folder before anything is sent: an impossible place costs no load test."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LoadTestError(f"--out {folder}: cannot be made ({error.strerror})") from error
    return folder


def _keep(trace: "Trace | None", folder: Path) -> None:
    """Write a generated load beside the run, so that it can be simulated or sent again."""
    from workloads.native import write_trace

    path = folder / "trace.jsonl"
    if trace is None:
        path.unlink(missing_ok=True)
    else:
        write_trace(trace, path)


def _run(endpoint: "Endpoint", trace: "Trace", load: "LoadOptions", show: "OnProgress") -> "Run":
    from loadtest.run.client import run_load_test

    if load.endless:
        label, total = f"load test, {load.duration_s:g} s", round(load.duration_s or 0)
    else:
        label, total = f"load test, {trace.span_s:.0f} s of arrivals", len(trace)
    with progress(label, total=total) as advance:

        def on_progress(state: "Progress") -> None:
            advance(round(state.elapsed_s) if load.endless else state.ended)
            show(state)

        return run_load_test(endpoint, trace, options=load, on_progress=on_progress)
