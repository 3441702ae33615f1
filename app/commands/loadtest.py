"""``servetwin loadtest``: replay a trace against a live endpoint."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app import options
from app.commands.report import require_plotly, write_html
from app.options import TraceOptions

if TYPE_CHECKING:
    from loadtest.client import LoadOptions
    from loadtest.comparison import Comparison, RequestDifferences
    from loadtest.endpoint import Endpoint
    from sim.metrics import SLO
    from sim.run import Run
    from workloads.trace import Trace

    Compared = tuple[Comparison, RequestDifferences]

_PANEL = "Endpoint"


class ApiChoice(StrEnum):
    """Which API is asked: one of OpenAI's, or the server's own."""

    completions = "completions"
    chat = "chat"
    native = "native"


class TooLongChoice(StrEnum):
    """What becomes of requests that are longer than the server's context."""

    drop = "drop"
    clip = "clip"


class PromptChoice(StrEnum):
    """What a prompt is made of."""

    auto = "auto"
    ids = "ids"
    text = "text"


def loadtest(
    url: Annotated[str, typer.Argument(help="LLM server, with or without /v1.")],
    trace: Annotated[Path, typer.Option(help="Azure CSV, Mooncake JSONL or our JSON Lines.")],
    dialect: Annotated[
        str | None,
        typer.Option(
            help="openai, vllm, sglang, tgi, llamacpp, tensorrt-llm, triton, mlc or ollama; "
            "default what is recognised.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    api: Annotated[
        ApiChoice | None,
        typer.Option(help="The API to ask; default the dialect's own.", rich_help_panel=_PANEL),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Served model; default the first.", rich_help_panel=_PANEL),
    ] = None,
    prompt: Annotated[
        PromptChoice,
        typer.Option(help="Token ids (exact lengths) or text.", rich_help_panel=_PANEL),
    ] = PromptChoice.auto,
    force_length: Annotated[
        bool,
        typer.Option(
            "--force-length/--no-force-length",
            help="Ask for the trace's exact output lengths, where the dialect can.",
            rich_help_panel=_PANEL,
        ),
    ] = True,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable with the API key; default OPENAI_API_KEY.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME: VALUE'",
            help="Also send this header; repeatable. Secret values are not stored.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    on_too_long: Annotated[
        TooLongChoice | None,
        typer.Option(
            help="Requests longer than the server's context: leave them out or shorten them.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Run folder of a prediction to compare with.")
    ] = None,
    slo: Annotated[str | None, typer.Option(help="Such as ttft=500ms,tpot=50ms,e2e=2s.")] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds for one request in all.", min=0.001)
    ] = 600,
    processes: Annotated[
        int | None,
        typer.Option(help="That share the load; default what its peak rate needs.", min=1),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write the report as one HTML file.")
    ] = None,
    rate_scale: options.RateScale = None,
    rate: options.Rate = None,
    prompt_scale: options.PromptScale = 1.0,
    output_scale: options.OutputScale = 1.0,
    start: options.Start = None,
    end: options.End = None,
    limit: options.Limit = None,
    spread_ties: options.SpreadTies = False,
    max_bad_rows: options.MaxBadRows = 0,
    seed: options.Seed = 0,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Send TRACE to URL, each request at its time, and report what every client saw.

    The API key, where one is needed, comes from an environment variable.
    """
    from loadtest.client import LoadOptions
    from loadtest.context_limit import within_context
    from loadtest.credentials import use_headers, use_key_of
    from loadtest.endpoint import probe
    from loadtest.server_metrics import save_server_metrics, watch_server
    from loadtest.slo import parse_slo

    if html:
        require_plotly()
    limits = parse_slo(slo) if slo else None
    requests = TraceOptions(
        trace, max_bad_rows, spread_ties, start, end, limit, prompt_scale, output_scale,
        rate_scale, rate, seed,
    ).read()  # fmt: skip
    if api_key_env:
        use_key_of(api_key_env)
    if header:
        use_headers(header)
    endpoint = probe(
        url,
        model=model,
        api=api.value if api else None,
        prompt=prompt.value,
        force_length=force_length,
        dialect=dialect,
    )
    requests = within_context(requests, endpoint, on_too_long.value if on_too_long else None)
    predicted = _prediction(against, requests)
    typer.echo(_asked_how(endpoint), err=True)
    folder = _new_folder(out or Path("runs") / time.strftime("loadtest-%Y%m%d-%H%M%S"))
    load = LoadOptions(timeout_s=timeout, processes=processes)
    with watch_server(endpoint.base_url) as watch:
        run = _run(endpoint, requests, load)
    run.scenario["seed"] = seed
    _note_prompt_lengths(run, requests)
    run.save(folder)
    typer.echo(save_server_metrics(watch, run, folder), err=True)
    compared = _compared(run, predicted) if predicted else None
    typer.echo((_as_json if json else _as_text)(run, limits, folder, compared))
    if predicted and not json:
        typer.echo("\n" + _as_sent(predicted, run, requests))
    if html:
        write_html([folder, *([against] if against else [])], slo, html)
    if complaint := _complaint(run, compared, folder):
        typer.echo(f"servetwin: {complaint}", err=True)
        raise typer.Exit(1)


def _asked_how(endpoint: "Endpoint") -> str:
    """How the endpoint will be asked, before anything is sent."""
    prompts = {"ids": "token ids", "text": "text"}[endpoint.prompt]
    length = "forced" if endpoint.force_length else "free"
    return (
        f"endpoint: {endpoint.url}, dialect {endpoint.dialect} ({endpoint.api}), model "
        f"{endpoint.model}, prompts as {prompts}, output length {length}"
    )


def _note_prompt_lengths(run: "Run", trace: "Trace") -> None:
    from loadtest.prompt_lengths import prompt_lengths_note

    if note := prompt_lengths_note(run.requests, trace):
        run.scenario["notes"].append(note)


def _prediction(against: Path | None, trace: "Trace") -> "Run | None":
    """The prediction to compare with, checked before anything is sent."""
    from loadtest.comparison import check_same_load
    from sim.run import load_run

    if against is None:
        return None
    predicted = load_run(against)
    check_same_load(predicted, trace)
    return predicted


def _new_folder(folder: Path) -> Path:
    """Made before the load is sent, so that an impossible place costs no load test."""
    from workloads.errors import LoadTestError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LoadTestError(f"--out {folder}: cannot be made ({error.strerror})") from error
    return folder


def _run(endpoint: "Endpoint", trace: "Trace", load: "LoadOptions") -> "Run":
    from app.progress import progress
    from loadtest.client import run_load_test

    with progress(f"load test, {trace.span_s:.0f} s of arrivals", total=len(trace)) as advance:
        return run_load_test(
            endpoint, trace, options=load, on_progress=lambda state: advance(state.ended)
        )


def _compared(run: "Run", predicted: "Run") -> "Compared":
    from loadtest.comparison import compare, compare_requests

    return compare(predicted, [run]), compare_requests(predicted, run)


def _as_sent(predicted: "Run", run: "Run", trace: "Trace") -> str:
    """The prediction again, on the send times that the load test recorded."""
    from app.replayed import replay_as_sent
    from loadtest.comparison_report import render_comparison
    from workloads.errors import ServetwinError

    try:
        again = replay_as_sent(predicted, run, trace)
    except ServetwinError as error:
        return f"not simulated again on the recorded send times: {error}"
    return "simulated again on the recorded send times\n" + render_comparison(again.comparison)


def _as_text(run: "Run", slo: "SLO | None", folder: Path, compared: "Compared | None") -> str:
    from app.sparkline import sparkline_lines
    from loadtest.comparison_report import render_comparison, render_requests
    from loadtest.report import render_report

    blocks = [render_report(run, slo, folder), "\n".join(sparkline_lines(run.requests))]
    if compared:
        comparison, differences = compared
        blocks += [render_comparison(comparison), render_requests(differences)]
    return "\n\n".join(blocks)


def _as_json(run: "Run", slo: "SLO | None", folder: Path, compared: "Compared | None") -> str:
    import json

    answer: dict[str, Any] = {**run.summary(slo), "run": str(folder), "scenario": run.scenario}
    if compared:
        comparison, differences = compared
        answer["comparison"] = comparison.as_dict()
        answer["unmatched"] = dict(differences.unmatched)
    return json.dumps(answer)


def _complaint(run: "Run", compared: "Compared | None", folder: Path) -> str | None:
    """Why the exit code is 1, or None where all is well."""
    from loadtest.hints import hint

    delivered = run.extra["delivered"]
    finished, total = int((run.requests["status"] == "finished").sum()), len(run.requests)
    kept = f"{finished} of {total} requests kept in {folder}"
    if delivered["interrupted"]:
        return f"interrupted: {kept}"
    if delivered["stopped"]:
        return f"stopped: {delivered['stopped']}; {kept}"
    if not finished:
        advice = hint(delivered["first_messages"])
        return "no request finished" + (f": {advice}" if advice else "")
    if compared and not compared[0].holds:
        return "the prediction does not hold"
    return None
