"""``servetwin replay stream``: the trace is read as it is simulated."""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from servetwin.app.reports.progress import progress
from servetwin.app.reports.run_words import outside_warning, provenance_line
from servetwin.app.reports.tables import (
    counts_line,
    error_lines,
    latency_table,
    note_lines,
    scenario_lines,
    steady_lines,
    totals_lines,
)
from servetwin.app.scenario.options.common import TRACE
from servetwin.app.scenario.options.groups import Only, takes_options
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions, ScenarioOptions
from servetwin.app.scenario.options.replay import STREAMED, ReplayOptions, StreamOptions
from servetwin.app.scenario.options.server import ServerOptions
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.scenario.scenarios import build_scenario, scenario_record
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.long_runs.partitioned_run import DividedRun, run_partitioned
from servetwin.sim.long_runs.row_tables import RunTables
from servetwin.sim.long_runs.sketched_summary import require_sketches
from servetwin.sim.long_runs.streamed_run import run_streamed, run_tables
from servetwin.sim.records.run import machine_facts

if TYPE_CHECKING:
    from servetwin.app.scenario.replay_scenario import ReplayScenario
    from servetwin.workloads.streams.streamed_trace import StreamedTrace


@takes_options(
    "--profile", "--model", "--hardware", "--batching", "--kv", "--partitions", "--processes",
    "--out",
)  # fmt: skip
def replay_stream(
    servers: ServerOptions,
    policy: PolicyOptions,
    cluster: ClusterOptions,
    part: Annotated[TraceOptions, Only(*STREAMED)],
    stream: StreamOptions,
    replayed: ReplayOptions,
    trace: Annotated[Path | None, TRACE] = None,
) -> None:
    """Simulate a TRACE that is read as it is simulated: memory stays flat, quantiles are sketched.

    In one pass, or in parts side by side.
    """
    stream.check()
    both = replayed.over_file(ScenarioOptions(servers, policy, cluster, part), trace)
    with replayed.claimed() as claim:
        _replay(both, stream, replayed, claim.begin if claim else None)


def _replay(
    both: "ReplayScenario",
    stream: StreamOptions,
    replayed: ReplayOptions,
    begin: "Callable[[], Path] | None",
) -> None:
    """Simulate the trace in one pass, or in parts; print its figures, keep the run if claimed."""
    require_sketches("servetwin replay stream")
    options = both.options
    base, policy, record = both.base(), both.policies(), both.servers().record()
    trace = stream.open(options.trace, options.cluster.closed_loop)
    found = build_scenario(trace, base, policy, options.cluster)
    found = replace(found, check=replayed.full_check)
    slo = both.file.slo.slo() if both.file else None
    folder = begin() if begin else None
    tables = run_tables(found, folder, slo)
    macro = not replayed.step_by_step
    try:
        wall_s = _simulate(trace, found, tables, stream, both.seed, macro, folder)
        summary = tables.summary(wall_s)
        scenario = scenario_record(trace, found, record, both.seed)
        tables.save(summary, scenario, machine_facts())
    except BaseException:
        tables.abandon()
        raise
    if warning := outside_warning(summary["provenance"], widened=False):
        typer.echo(warning, err=True)
    if replayed.as_json:
        typer.echo(json.dumps({**summary, "intervals": {}, **scenario}))
        return
    kept = [f"run folder: {folder}"] if folder else []
    typer.echo("\n".join([*_report(trace, summary, found, scenario, tables.error_counts()), *kept]))


def _simulate(
    trace: "StreamedTrace",
    scenario: Scenario,
    tables: RunTables,
    stream: StreamOptions,
    seed: int,
    macro: bool,
    folder: Path | None,
) -> float:
    with progress(f"simulating {scenario.name}", total=len(trace)) as advance:
        if stream.partitions is None:
            return run_streamed(trace, scenario, tables, seed=seed, macro=macro, on_arrival=advance)
        spool = folder / ".parts" if folder else Path(tempfile.mkdtemp(prefix="servetwin-parts-"))
        return run_partitioned(
            DividedRun(trace, scenario, seed, macro, spool),
            tables,
            parts=stream.partitions,
            simulated=stream.simulated,
            on_arrival=advance,
        )


def _report(
    trace: "StreamedTrace",
    summary: Mapping[str, Any],
    scenario: Scenario,
    record: Mapping[str, Any],
    errors: Mapping[str, int],
) -> list[str]:
    return [
        *scenario_lines(trace.source, scenario, record),
        *note_lines(trace.notes),
        counts_line(summary["requests"]),
        *error_lines(errors),
        "",
        *latency_table(summary, {}),
        "percentiles are sketched, to about 0.1 %",
        "",
        *steady_lines(summary["steady"]),
        "",
        *totals_lines(summary),
        provenance_line(summary["provenance"]),
        "no intervals: a stream is simulated once",
    ]
