"""``servetwin replay``: simulate a trace under a policy, on a profile."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from servetwin.app.reports.progress import progress, saved_if_asked
from servetwin.app.scenario.options.common import (
    MOST_REPLICATIONS,
    TRACE,
    Csv,
    PictureOptions,
)
from servetwin.app.scenario.options.groups import Only, takes_options
from servetwin.app.scenario.options.policy import ScenarioOptions
from servetwin.app.scenario.options.replay import KEPT, ReplayOptions
from servetwin.workloads.errors import ServetwinError

if TYPE_CHECKING:
    from servetwin.app.reports.html.picture_file import PictureFile
    from servetwin.app.scenario.files.scenario_file import ScenarioFile
    from servetwin.app.scenario.replay_scenario import ReplayScenario
    from servetwin.sim.experiments.scenario import Scenario
    from servetwin.sim.records.run import Run
    from servetwin.workloads.trace import Trace

AUTO_REPLICATION_BUDGET_S = 5.0
AUTO_REPLICATIONS = 10
Replications = Annotated[
    int | None,
    Option(help="Simulations behind the intervals; 0 for none.", min=0, max=MOST_REPLICATIONS),
]
OptionalTrace = Annotated[Path | None, TRACE]


@dataclass(frozen=True, slots=True)
class SingleRun:
    """What a single run keeps beside its figures."""

    replications: Replications = None
    kv_usage: Annotated[bool, Option("--kv-usage")] = False
    """Where the KV memory is, in every row of the steps."""
    csv: Csv = False


@takes_options(
    "--profile", "--model", "--hardware", "--batching", "--kv", "--rate", "--limit", "--out",
)  # fmt: skip
def replay(
    options: ScenarioOptions,
    replayed: ReplayOptions,
    single: SingleRun,
    picture: PictureOptions,
    trace: OptionalTrace = None,
) -> None:
    """Simulate TRACE under a policy and print TTFT, TPOT, throughput with their intervals."""
    plotted = picture.file(overwrite=replayed.overwriting.overwrite, runs=1)
    both = replayed.over_file(options, trace)
    if single.csv and replayed.out is None:
        raise ServetwinError("--csv: give --out, the folder for it")
    from servetwin.app.scenario.scenarios import build_scenario, scenario_record
    from servetwin.sim.experiments.predict import run_once
    from servetwin.sim.records.run import machine_facts

    requests = both.requests()
    scenario = build_scenario(requests, both.base(), both.policies(), options.cluster)
    scenario = replace(scenario, check=replayed.full_check)
    with replayed.claimed() as claim:
        with progress(f"simulating {scenario.name}", total=len(requests)) as advance:
            run = run_once(
                requests, scenario, seed=both.seed, macro=not replayed.step_by_step,
                keep_usage=single.kv_usage, on_arrival=advance,
            )  # fmt: skip
        run.scenario = scenario_record(requests, scenario, both.servers().record(), both.seed)
        run.meta, run.as_csv = machine_facts(), single.csv
        with saved_if_asked(run, claim.begin() if claim else None) as folder:
            prediction = Replayed(both, requests, scenario, run)
            prediction.print(single.replications, folder, replayed.as_json)
    if plotted:
        _draw(plotted, picture, {scenario.name: run}, both.file, replayed.as_json)


@takes_options(
    "--profile", "--model", "--hardware", "--rate", "--limit", "--replications", "--plot", "--out",
)  # fmt: skip
def replay_compare(
    a: Annotated[str, Argument(help="A policy: preset, label such as static+paged, KEY=VALUE.")],
    b: Annotated[str, Argument(help="The policy that is compared with it.")],
    options: ScenarioOptions,
    replayed: Annotated[ReplayOptions, Only(*KEPT)],
    picture: PictureOptions,
    trace: OptionalTrace = None,
    replications: Replications = None,
) -> None:
    """Simulate TRACE under two policies over the same seeds, and print how B differs from A."""
    plotted = picture.file(overwrite=replayed.overwriting.overwrite, runs=2)
    both = replayed.over_file(options, trace)
    from servetwin.app.reports.comparison import print_comparison
    from servetwin.app.scenario.scenarios import build_scenario

    requests, base, policy = both.requests(), both.base(), both.policies()
    scenarios = [
        replace(
            build_scenario(requests, base, policy, options.cluster, text),
            check=replayed.full_check,
        )
        for text in (a, b)
    ]
    record, as_json = both.servers().record(), replayed.as_json
    with replayed.claimed() as claim:
        runs = print_comparison(
            requests, scenarios, (a, b), record, both.seed, replications, claim, as_json
        )
    if plotted:
        names = (a, b) if a != b else (f"A: {a}", f"B: {b}")
        _draw(plotted, picture, dict(zip(names, runs, strict=True)), both.file, as_json)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A run of a scenario, and what made it."""

    both: "ReplayScenario"
    trace: "Trace"
    scenario: "Scenario"
    run: "Run"

    def print(self, replications: int | None, folder: Path | None, as_json: bool) -> None:
        """Print the run that is kept in ``folder``, with intervals where they are wanted."""
        from servetwin.app.reports.run_words import outside_warning

        file, run = self.both.file, self.run
        summary = run.summary(file.slo.slo() if file else None)
        intervals = self._intervals(replications)
        if folder and intervals:  # the run itself was kept before the replications
            run.extra["intervals"] = intervals
            run.save(folder)
        if warning := outside_warning(summary["provenance"], widened=bool(intervals)):
            typer.echo(warning, err=True)
        if as_json:
            typer.echo(json.dumps({**summary, "intervals": intervals, **run.scenario}))
        else:
            kept = [f"run folder: {folder}"] if folder else []
            typer.echo("\n".join([*_report(run, summary, intervals, self.scenario), *kept]))

    def _intervals(self, wanted: int | None) -> dict[str, Any]:
        from servetwin.sim.experiments.predict import interval, summaries_over_seeds

        replications, redraw = self._affordable(wanted), self.both.redraw(self.scenario)
        if replications < 2 or (self.scenario.is_repeatable() and not redraw):
            return {}  # a single draw is no interval
        summaries = list(
            summaries_over_seeds(
                self.trace, self.scenario, self.run, seed=self.both.seed,
                replications=replications, redraw=redraw,
            )
        )  # fmt: skip
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

    def _affordable(self, replications: int | None) -> int:
        if replications is not None:
            return replications
        wall_s = self.run.extra["simulation"]["wall_s"]
        return AUTO_REPLICATIONS if wall_s * AUTO_REPLICATIONS < AUTO_REPLICATION_BUDGET_S else 0


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
    line = draw_runs(plotted, picture.chart, named, file.slo.slo() if file else None)
    typer.echo(line, err=as_json)


_PARTS = ("mean", "p50", "p90", "p99")


def _report(
    run: "Run", summary: Mapping[str, Any], intervals: Mapping[str, Any], scenario: "Scenario"
) -> list[str]:
    from servetwin.app.reports.run_words import provenance_line
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
        provenance_line(summary["provenance"]),
    ]
    if scenario.is_certain():
        lines.append(f"step times {origin_words(scenario.origins)}: their error is unknown")
    elif not intervals:
        lines.append("no intervals (off, or the run is long): --replications 10")
    return lines
