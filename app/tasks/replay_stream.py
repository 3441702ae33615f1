"""Replay a trace that is read as it is simulated."""

import tempfile
from pathlib import Path

import typer

from servetwin.app.reports.progress import progress
from servetwin.app.reports.run_words import outside_warning, provenance_line
from servetwin.app.reports.tables import error_lines, latency_table, steady_lines, totals_lines
from servetwin.app.scenario.options.simulations import StreamOptions
from servetwin.app.scenario.scenarios import scenario_record
from servetwin.app.tasks.replay import Replay, head_lines, print_run
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.long_runs.partitioned_run import DividedRun, run_partitioned
from servetwin.sim.long_runs.row_tables import RunTables
from servetwin.sim.long_runs.sketched_summary import require_sketches
from servetwin.sim.long_runs.streamed_run import run_streamed, run_tables
from servetwin.sim.records.run import machine_facts
from servetwin.workloads.streams.streamed_trace import StreamedTrace


def replay_stream(replay: Replay, stream: StreamOptions) -> None:
    """Simulate the trace in one pass, or in parts; print its figures, keep the run."""
    options = replay.replayed
    with options.overwriting.claimed_if_asked(options.out) as claim:
        require_sketches("servetwin replay stream")
        record = replay.servers().settings()
        trace = stream.open(replay.options.trace, replay.options.cluster.closed_loop)
        scenario = replay.scenario(trace)
        folder = claim.begin() if claim else None
        tables = run_tables(scenario, folder, replay.slo)
        try:
            wall_s = _simulate(replay, stream, trace, scenario, tables, folder)
            summary = tables.summary(wall_s)
            written = scenario_record(trace, scenario, record, replay.seed)
            tables.save(summary, written, machine_facts())
        except BaseException:
            tables.abandon()
            raise
        if warning := outside_warning(summary["provenance"], widened=False):
            typer.echo(warning, err=True)
        lines = [
            *head_lines(written, scenario, summary, error_lines(tables.error_counts())),
            *latency_table(summary, {}),
            "percentiles are sketched, to about 0.1 %",
            "",
            *steady_lines(summary["steady"]),
            "",
            *totals_lines(summary),
            provenance_line(summary["provenance"]),
            "no intervals: a stream is simulated once",
        ]
        print_run(options.as_json, {**summary, "intervals": {}, **written}, lines, folder)


def _simulate(
    replay: Replay,
    stream: StreamOptions,
    trace: StreamedTrace,
    scenario: Scenario,
    tables: RunTables,
    folder: Path | None,
) -> float:
    """Return the seconds that the simulation took."""
    seed, macro = replay.seed, not replay.replayed.step_by_step
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
