"""``servetwin loadtest``: send a load to a live endpoint and see what clients see."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from app.commands.report import require_plotly, write_html
from app.commands.sent_load import sent_load
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
    gate_complaint,
)
from app.text.progress_log import live_file
from app.text.saving import saved
from workloads.errors import LoadTestError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from loadtest.body.body_options import BodyOptions
    from loadtest.endpoint import Endpoint
    from loadtest.report.fail_conditions import Finding
    from loadtest.report.server_metrics import ServerWatch
    from loadtest.run.client import LoadOptions
    from sim.records.metrics import SLO as SLOLimits
    from sim.records.run import Run
    from sim.records.run_claim import RunClaim
    from workloads.tokenizer import LocalTokenizer
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
        with _claimed(overwriting, out) as claim:
            task = _Sweep(url, load, endpoint, options, limits, how)
            kept = task.run((servers, policy), claim, json)
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
        test = _LoadTest(requests, load, sending, at, live, tokenizer)
        if other:
            test.in_turns(
                probed,
                other,
                turns,
                allowed,
                json,
                lambda run: judge_conditions(conditions, run, limits),
            )
            return
        run, watch = test.of(probed)
        with signals_deferred(), saved(run, at) as kept:
            typer.echo(_server_said(watch, run, kept), err=True)
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


@dataclass(frozen=True, slots=True)
class _Sweep:
    """The load tests of a sweep over load levels."""

    url: str
    load: LoadChoice
    endpoint: EndpointOptions
    options: "BodyOptions"
    slo: "SLOLimits | None"
    how: Mapping[str, Any]
    """Fields of ``LoadOptions`` that every level has."""

    def run(
        self, simulated: tuple[ServerOptions, PolicyOptions], claim: "RunClaim", json: bool
    ) -> Path:
        """Send the levels, print what they show, and return the folder of all."""
        from app.commands.loadtest_sweep import Simulator, sweep_levels
        from app.scenario.levels.level_load import LevelLoad
        from loadtest.plan.undefined_times import check_times

        levels, too_long = LevelLoad(self.load), self.endpoint.on_too_long
        with_images = self.options.images is not None
        endpoint = self.endpoint.for_prompts(levels.predicted_trace(), images=with_images)
        probed = endpoint.probe(self.url, self.options)
        check_times(probed, self.load.options(**self.how), self.slo, predicted=False)
        typer.echo(endpoint_line(probed), err=True)
        simulator = Simulator(*simulated)
        return sweep_levels(levels, probed, too_long, self.slo, simulator, claim, self.send, json)

    def send(
        self, requests: "Trace", load: LoadChoice, endpoint: "Endpoint", folder: Path
    ) -> "Run":
        """Send the requests of a level."""
        from loadtest.plan.undefined_times import without_outputs

        if endpoint.api == "embeddings":
            requests = without_outputs(requests)
        sending = load.options(**self.how)
        folder.mkdir(parents=True, exist_ok=True)
        test = _LoadTest(requests, load, sending, folder, None, load.tokenizer())
        run, watch = test.of(endpoint)
        _server_said(watch, run, folder)
        return run


@dataclass(frozen=True, slots=True)
class _LoadTest:
    """What is sent, how, and where its records go."""

    trace: "Trace"
    load: LoadChoice
    sending: "LoadOptions"
    folder: Path
    live: Path | None
    tokenizer: "LocalTokenizer | None"

    def of(self, endpoint: "Endpoint") -> "tuple[Run, ServerWatch]":
        """Send the load to an endpoint, with a generated one kept in the folder."""
        from loadtest.report.prompt_cache import prompt_cache
        from loadtest.report.server_metrics import watch_server
        from loadtest.report.token_count_warnings import prompt_lengths_note
        from loadtest.run.journal import Journal

        _keep(self.trace if self.load.is_made else None, self.folder)
        watching = watch_server(endpoint.base_url, insecure=endpoint.insecure)
        scenario = {"seed": self.load.seed, "load": self.load.record()}
        with (
            watching as watch,
            live_file(self.live) as show,
            Journal(self.folder, scenario) as journal,
        ):
            run = sent_load(endpoint, self.trace, self.sending, show, journal)
        run.as_csv = self.load.csv
        run.scenario |= scenario
        run.extra["prompt_cache"] = prompt_cache(run.requests, self.trace, watch.cache_counts())
        if note := prompt_lengths_note(run.requests, *self._counted(endpoint, run)):
            run.scenario["notes"].append(note)
        return run, watch

    def _counted(self, endpoint: "Endpoint", run: "Run") -> "tuple[Trace, str | None]":
        """Return the trace as the client's tokenizer counts what was sent, and its name."""
        from loadtest.report.counted_prompts import counted_prompts

        if self.tokenizer is None:
            return self.trace, None
        sent = replace(endpoint, salt=run.scenario["endpoint"]["salt"])
        return counted_prompts(self.trace, sent, self.tokenizer), self.tokenizer.name

    def in_turns(
        self,
        judged: "Endpoint",
        baseline: "Endpoint",
        turns: int,
        allowed: Mapping[str, float],
        json: bool,
        find: "Callable[[Run], list[Finding]]",
    ) -> None:
        """Send the load to both in turns, the baseline first and last, and judge; A/B/A.

        The runs are in ``baseline/1``, ``run/1``, ``baseline/2`` ... of the folder. Each has
        prompts of its own, so that no prefix cache favours the second run of a server. ``find``
        says which conditions a run of the judged server fails.
        """
        from loadtest.report.gate import judge
        from loadtest.report.gate_report import render_gate
        from loadtest.run.stop_signals import signals_deferred

        sides: tuple[dict[str, Run], dict[str, Run]] = ({}, {})
        for turn in range(2 * turns + 1):
            side = turn % 2
            at = self.folder / ("baseline", "run")[side] / str(turn // 2 + 1)
            at.mkdir(parents=True, exist_ok=True)
            run, watch = replace(self, folder=at).of((baseline, judged)[side].salted("turn", turn))
            with signals_deferred(), saved(run, at) as kept:
                typer.echo(f"{kept}: {_server_said(watch, run, kept)}", err=True)
                sides[side][str(kept)] = run
            if run.extra["delivered"]["interrupted"]:
                typer.echo(f"servetwin: interrupted: the runs are in {self.folder}", err=True)
                raise typer.Exit(1)
        found = judge(*sides, allowed)
        typer.echo(dumps(found.as_dict()) if json else render_gate(found))
        runs = sides[1].items()
        wrongs = [complaint(run, Path(at), find(run)) for at, run in runs]
        if wrong := next(filter(None, [*wrongs, gate_complaint(found)]), None):
            typer.echo(f"servetwin: {wrong[0]}", err=True)
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


def _claimed(overwriting: Overwriting, out: Path | None) -> "AbstractContextManager[RunClaim]":
    """Claim the run folder before anything is sent; a new one is named by the time."""
    from sim.records.run_claim import claimed_new_run

    if out is not None:
        return overwriting.claimed(out)
    return claimed_new_run(Path("runs") / time.strftime("loadtest-%Y%m%d-%H%M%S"))


def _keep(trace: "Trace | None", folder: Path) -> None:
    """Write a generated load beside the run, so that it can be simulated or sent again."""
    from loadtest.plan.undefined_times import with_an_output
    from workloads.native import write_trace

    if trace is not None:
        write_trace(with_an_output(trace), folder / "trace.jsonl")
