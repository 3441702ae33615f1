"""``servetwin loadtest``: send a load to a live endpoint and see what clients see."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from app.commands.loadtest_turns import report_turns, run_in_turns
from app.commands.report import require_plotly, write_html
from app.commands.sent_load import LoadTest, server_said
from app.scenario.common_options import SLO, GateOptions, Json, Overwriting, RunFolder, Seed
from app.scenario.endpoint_options import BodyChoice, EndpointOptions, endpoint_line
from app.scenario.levels.level_sweep_options import (
    require_one_load_test,
    require_slo,
    require_sweep,
)
from app.scenario.load_options import LoadChoice, WorkerOptions
from app.scenario.option_groups import Only, takes_options
from app.scenario.policy_options import PolicyOptions
from app.scenario.server_options import ServerOptions
from app.text.load_report import (
    as_json,
    as_sent,
    as_text,
    compared,
    complaint,
)
from app.text.saving import saved
from workloads.errors import LoadTestError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from loadtest.endpoint import Endpoint
    from loadtest.run.client import LoadOptions
    from sim.records.run import Run
    from sim.records.run_claim import RunClaim
    from workloads.trace import Trace


@takes_options
def loadtest(
    url: Annotated[str, Argument(help="LLM server, with or without /v1.")],
    load: LoadChoice,
    endpoint: EndpointOptions,
    body: BodyChoice,
    gate: GateOptions,
    overwriting: Overwriting,
    workers: WorkerOptions,
    servers: Annotated[ServerOptions, Only("profiles")],
    policy: Annotated[PolicyOptions, Only("preset", "settings")],
    against: Annotated[
        Path | None, Option(help="Run folder of a prediction to compare with.")
    ] = None,
    baseline_url: Annotated[
        str | None,
        Option(
            help="Or judge URL against this server: load tests of both in turns (A/B/A).",
            rich_help_panel=GateOptions.PANEL,
        ),
    ] = None,
    turns: Annotated[
        int,
        Option(
            help="Of --baseline-url: load tests of URL, each between two of the baseline.",
            min=1,
            rich_help_panel=GateOptions.PANEL,
        ),
    ] = 1,
    slo: Annotated[str | None, SLO] = None,
    timeout: Annotated[float, Option(help="Seconds for one request in all.", min=0.001)] = 600,
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
    from loadtest.plan.undefined_times import check_times, without_outputs
    from loadtest.report.fail_conditions import judge_conditions
    from loadtest.report.gate import judge
    from loadtest.report.slo import parse_slo
    from loadtest.run.stop_signals import signals_deferred

    if html:
        require_plotly()
    limits, allowed = parse_slo(slo) if slo else None, gate.limits()
    conditions, options = gate.fail_conditions(slo), body.options(seed)
    load = replace(load, seed=seed)
    how = {"timeout_s": timeout, **asdict(workers)}
    if load.sweep.of:
        require_slo(load.sweep, slo)
        judges = {"--against": against, "--baseline": gate.baseline, "--baseline-url": baseline_url}
        others = {"--allow": gate.allow, "--fail-if": gate.fail_if, "--live": live}
        require_one_load_test({**judges, **others})
        from app.commands.loadtest_sweep import Simulator, SweptServer

        with _claimed(overwriting, out) as claim:
            swept = SweptServer(url, load, endpoint, options, limits, how)
            kept = swept.sweep(Simulator(servers, policy), claim, json)
            if html:
                write_html([kept], slo, html)
        return
    require_sweep(
        {"--profile": servers.profiles, "--preset": policy.preset, "--set": policy.settings}
    )
    sending = load.options(**how)
    tokenizer = load.tokenizer()
    requests = load.trace()
    _require_one_judge(against, gate, baseline_url, html)
    if load.endless and (gate.baseline or baseline_url):
        raise LoadTestError(
            "--baseline: users that send until --duration send as many as the server is fast; give "
            "--limit N, so that both have the same requests"
        )
    endpoint = endpoint.for_prompts(requests, images=options.images is not None)
    probed = endpoint.probe(url, options)
    check_times(probed, sending, limits, predicted=against is not None)
    if probed.api == "embeddings":
        requests = without_outputs(requests)
    too_long = endpoint.on_too_long
    requests = within_context(requests, probed, too_long.value if too_long else None)
    predicted = _prediction(against, requests, sending)
    baselines = _baselines(gate, probed, requests, sending)
    other = endpoint.probe(baseline_url, options) if baseline_url else None
    for each in (probed, other):
        if each:
            typer.echo(endpoint_line(each), err=True)
    with _claimed(overwriting, out) as claim:
        at = claim.begin()
        test = LoadTest(requests, load, sending, at, live, tokenizer)
        if other:
            sides = run_in_turns(test, probed, other, turns)
            report_turns(
                sides, allowed, json, lambda run: judge_conditions(conditions, run, limits)
            )
            return
        run, watch = test.of(probed)
        with signals_deferred(), saved(run, at) as kept:
            typer.echo(server_said(watch, run, kept), err=True)
            found = compared(run, predicted) if predicted else None
            judged = judge(baselines, {str(kept): run}, allowed) if baselines else None
            findings = judge_conditions(conditions, run, limits)
            if json:
                typer.echo(as_json(run, limits, kept, findings, found, judged))
            else:
                typer.echo(as_text(run, limits, kept, found, judged))
            if predicted and not json:
                typer.echo("\n" + as_sent(predicted, run, requests))
            if wrong := complaint(run, kept, findings, found, judged):
                typer.echo(f"servetwin: {wrong[0]}", err=True)
            if html:
                write_html([kept, *([against] if against else [])], slo, html)
            if wrong:
                raise typer.Exit(wrong[1])


def _require_one_judge(
    against: Path | None, gate: GateOptions, baseline_url: str | None, html: Path | None
) -> None:
    """Raise ``LoadTestError`` where several options say what the run is judged against."""
    options = {"--against": against, "--baseline": gate.baseline, "--baseline-url": baseline_url}
    given = [name for name, value in options.items() if value]
    if len(given) > 1:
        raise LoadTestError(f"{given[0]} and {given[1]} exclude each other: give one")
    if gate.allow and given in ([], ["--against"]):
        raise LoadTestError("--allow is of a baseline: give --baseline or --baseline-url as well")
    if html and baseline_url:
        raise LoadTestError(
            "--html and --baseline-url: there are several runs; servetwin report OUT"
        )


def _baselines(
    gate: GateOptions, endpoint: "Endpoint", trace: "Trace", load: "LoadOptions"
) -> "dict[str, Run]":
    """Return the runs of the baseline; another load is refused before anything is sent."""
    from app.text.report_folders import runs_by_folder
    from loadtest.report.comparison import check_same_load
    from loadtest.report.same_load import require_same_settings
    from loadtest.run.client import load_scenario

    scenario = load_scenario(endpoint, trace, load, len(trace))
    baselines = {str(at): run for at, run in runs_by_folder(gate.baseline).items()}
    for name, run in baselines.items():
        if run.kind != "loadtest":
            raise LoadTestError(f"--baseline {name}: a simulation; --against judges a prediction")
        require_same_settings("this load test", scenario, f"--baseline {name}", run.scenario)
        check_same_load(
            run, trace, closed_loop=load.follows(trace), option="--baseline", other=name
        )
    return baselines


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


def _claimed(overwriting: Overwriting, out: Path | None) -> "AbstractContextManager[RunClaim]":
    """Claim the run folder before anything is sent; a new one is named by the time."""
    from sim.records.run_claim import claimed_new_run

    if out is not None:
        return overwriting.claimed(out)
    return claimed_new_run(Path("runs") / time.strftime("loadtest-%Y%m%d-%H%M%S"))
