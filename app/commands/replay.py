"""``servetwin replay``: simulate a trace under a policy, on a profile."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from servetwin.app.lasting_imports import lasting_imports
from servetwin.app.reports.progress import progress, saved_if_asked
from servetwin.app.scenario.options.common import (
    MOST_REPLICATIONS,
    TRACE,
    Csv,
    Json,
    Overwriting,
    PictureOptions,
    RunFolder,
)
from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.policy import ClusterOptions, ScenarioOptions
from servetwin.app.scenario.options.stream import StreamOptions
from servetwin.workloads.files import require_there

if TYPE_CHECKING:
    from servetwin.app.reports.html.picture_file import PictureFile
    from servetwin.app.scenario.files.scenario_file import ScenarioFile
    from servetwin.app.scenario.replay_scenario import ReplayScenario
    from servetwin.sim.experiments.predict import Redraw
    from servetwin.sim.experiments.scenario import Scenario
    from servetwin.sim.records.run import Run
    from servetwin.workloads.trace import Trace

AUTO_REPLICATION_BUDGET_S = 5.0
AUTO_REPLICATIONS = 10


@takes_options(
    "--profile", "--model", "--hardware", "--batching", "--kv", "--rate", "--limit", "--out",
)  # fmt: skip
def replay(
    options: ScenarioOptions,
    stream: StreamOptions,
    overwriting: Overwriting,
    picture: PictureOptions,
    trace: Annotated[Path | None, TRACE] = None,
    scenario: Annotated[
        Path | None, Option(metavar="FILE", help="What the dashboard saved; TRACE and options win.")
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        Option(metavar="A B", help="Two policies side by side: presets, labels, KEY=VALUE."),
    ] = None,
    replications: Annotated[
        int | None,
        Option(help="Simulations behind the intervals; 0 for none.", min=0, max=MOST_REPLICATIONS),
    ] = None,
    step_by_step: Annotated[
        bool, Option("--step-by-step", help="One event per step: slow, the same result.")
    ] = False,
    check: Annotated[
        bool, Option("--check", help="Check every sequence and all KV memory at each step: slow.")
    ] = False,
    kv_usage: Annotated[
        bool, Option("--kv-usage", help="Where the KV memory is, in every row of the steps.")
    ] = False,
    seed: Annotated[
        int | None,
        Option(help="Seed of every random stream: the scenario's, or 0.", min=0, max=2**63 - 1),
    ] = None,
    out: RunFolder = None,
    csv: Csv = False,
    as_json: Json = False,
) -> None:
    """Simulate TRACE under a policy and print TTFT, TPOT, throughput with their intervals."""
    if trace is not None:
        require_there(trace)
    plotted = picture.file(overwrite=overwriting.overwrite, runs=2 if compare else 1)
    with lasting_imports():
        from servetwin.app.scenario.files.scenario_file import read_scenario
        from servetwin.app.scenario.replay_scenario import ReplayScenario
        from servetwin.sim.records.run import RunError

    if csv and (compare or out is None):
        raise RunError("--csv: give --out, the folder for it, and no --compare")
    file = read_scenario(scenario) if scenario else None
    seed = seed if seed is not None else file.seed if file else 0
    both = ReplayScenario(file, options.with_trace(trace, seed))
    if stream.wanted:
        from servetwin.app.commands.streamed_replay import replay_streamed, require_streamable

        require_streamable(
            compare=compare, csv=csv, kv_usage=kv_usage, replications=replications, plot=plotted
        )
        with overwriting.claimed_if_asked(out) as claim:
            macro = not step_by_step
            replay_streamed(
                both, stream, seed=seed, macro=macro, check=check, claim=claim, as_json=as_json
            )
        return
    asked = _Asked(
        both, options.cluster, seed, replications, not step_by_step, kv_usage, as_json, check
    )
    if compare:
        runs = _compared(asked, compare, overwriting, out)
    else:
        runs = _alone(asked, overwriting, out, csv)
    if plotted:
        _draw(plotted, picture, runs, file, as_json)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is simulated, and how; whether JSON is printed."""

    both: "ReplayScenario"
    cluster: ClusterOptions
    seed: int
    replications: int | None
    macro: bool
    keep_usage: bool
    as_json: bool
    check: bool


def _compared(
    asked: _Asked, compare: tuple[str, str], overwriting: Overwriting, out: Path | None
) -> dict[str, "Run"]:
    """Simulate and print two policies side by side; return the run of each."""
    from servetwin.app.reports.comparison import print_comparison
    from servetwin.app.scenario.scenarios import build_scenario

    both, requests = asked.both, asked.both.requests()
    base, policy, record = both.base(), both.policies(), both.servers().record()
    sides = [
        replace(build_scenario(requests, base, policy, asked.cluster, text), check=asked.check)
        for text in compare
    ]
    with overwriting.claimed_if_asked(out) as claim:
        runs = print_comparison(
            requests, sides, compare, record, asked.seed, asked.replications, claim, asked.as_json
        )
    return dict(zip(_distinct(compare), runs, strict=True))


def _alone(
    asked: _Asked, overwriting: Overwriting, out: Path | None, csv: bool
) -> dict[str, "Run"]:
    """Simulate, save and print one scenario; return its run by its name."""
    from servetwin.app.scenario.scenarios import build_scenario, scenario_record
    from servetwin.sim.experiments.predict import run_once
    from servetwin.sim.records.run import machine_facts

    both, requests = asked.both, asked.both.requests()
    found = build_scenario(requests, both.base(), both.policies(), asked.cluster)
    found = replace(found, check=asked.check)
    with overwriting.claimed_if_asked(out) as claim:
        with progress(f"simulating {found.name}", total=len(requests)) as advance:
            run = run_once(
                requests, found, seed=asked.seed, macro=asked.macro, keep_usage=asked.keep_usage,
                on_arrival=advance,
            )  # fmt: skip
        run.scenario = scenario_record(requests, found, both.servers().record(), asked.seed)
        run.meta, run.as_csv = machine_facts(), csv
        with saved_if_asked(run, claim.begin() if claim else None) as folder:
            _print_run(asked, requests, found, run, folder)
    return {found.name: run}


def _print_run(
    asked: _Asked, requests: "Trace", found: "Scenario", run: "Run", folder: Path | None
) -> None:
    """Print a run that is kept in ``folder``, with intervals where they are wanted."""
    from servetwin.app.reports.run_words import outside_warning

    both, file = asked.both, asked.both.file
    summary = run.summary(file.slo.slo() if file else None)
    count = _affordable(run, asked.replications)
    intervals = _intervals(requests, found, run, asked.seed, count, both.redraw(found))
    if folder and intervals:  # the run itself was kept before the replications
        run.extra["intervals"] = intervals
        run.save(folder)
    if warning := outside_warning(summary["provenance"], widened=bool(intervals)):
        typer.echo(warning, err=True)
    if asked.as_json:
        typer.echo(json.dumps({**summary, "intervals": intervals, **run.scenario}))
    else:
        kept = [f"run folder: {folder}"] if folder else []
        typer.echo("\n".join([*_report(run, summary, intervals, found), *kept]))


def _draw(
    plotted: "PictureFile",
    picture: PictureOptions,
    runs: Mapping[str, "Run"],
    file: "ScenarioFile | None",
    as_json: bool,
) -> None:
    from servetwin.app.reports.html.picture_file import draw_runs
    from servetwin.app.reports.report_folders import NamedRun

    named = [NamedRun(name, run) for name, run in runs.items()]
    line = draw_runs(plotted, picture, named, file.slo.slo() if file else None)
    typer.echo(line, err=as_json)


def _distinct(names: tuple[str, str]) -> tuple[str, str]:
    """Return the names of both sides; with letters where they are the same."""
    a, b = names
    return names if a != b else (f"A: {a}", f"B: {b}")


def _affordable(run: "Run", replications: int | None) -> int:
    if replications is not None:
        return replications
    wall_s = run.extra["simulation"]["wall_s"]
    return AUTO_REPLICATIONS if wall_s * AUTO_REPLICATIONS < AUTO_REPLICATION_BUDGET_S else 0


def _intervals(
    trace: "Trace",
    scenario: "Scenario",
    run: "Run",
    seed: int,
    replications: int,
    redraw: "Redraw | None",
) -> dict[str, Any]:
    from servetwin.sim.experiments.predict import interval, summaries_over_seeds

    if replications < 2 or (scenario.is_repeatable() and not redraw):
        return {}  # a single draw is no interval
    summaries = list(
        summaries_over_seeds(
            trace, scenario, run, seed=seed, replications=replications, redraw=redraw
        )
    )
    metrics = [f"{name}.{part}" for name in ("ttft_s", "tpot_s", "e2e_s") for part in _PARTS]
    found = {m: interval(summaries, m) for m in (*metrics, "output_throughput_tokens_per_s")}
    return {
        metric: {
            "median": i.value,
            "p5": i.low,
            "p95": i.high,
            "standard_error": i.standard_error,
        }
        for metric, i in found.items()
        if i
    }


_PARTS = ("mean", "p50", "p90", "p99")


def _report(
    run: "Run", summary: Mapping[str, Any], intervals: Mapping[str, Any], scenario: "Scenario"
) -> list[str]:
    from servetwin.app.reports.run_words import rests_line
    from servetwin.app.reports.tables import (
        counts_line,
        error_lines,
        latency_table,
        note_lines,
        scenario_lines,
        sparkline_lines,
        steady_lines,
        totals_lines,
    )
    from servetwin.app.words import origin_words

    lines = [
        *scenario_lines(run.scenario["trace"], scenario, run.scenario),
        *note_lines(run.scenario["notes"]),
        counts_line(summary["requests"]),
        *error_lines(run.requests["error"]),
        "",
        *latency_table(summary, intervals),
        "",
        *steady_lines(summary["steady"]),
        "",
        *sparkline_lines(run.requests),
        "",
        *totals_lines(summary),
        rests_line(summary["provenance"]),
    ]
    if scenario.is_certain():
        lines.append(f"step times {origin_words(scenario.origins)}: their error is unknown")
    elif not intervals:
        lines.append("no intervals (off, or the run is long): --replications 10")
    return lines
