"""Replay a trace that is read as it is simulated."""

import typer

from servetwin.app.reports.progress import progress
from servetwin.app.reports.run_words import outside_warning, provenance_line
from servetwin.app.reports.tables import error_lines, latency_table, steady_lines, totals_lines
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.scenario.scenarios import scenario_record
from servetwin.app.tasks.replay import Replay, head_lines, print_run
from servetwin.sim.long_runs.sketched_summary import require_sketches
from servetwin.sim.long_runs.streamed_run import run_streamed, run_tables
from servetwin.sim.records.run import machine_facts
from servetwin.workloads.errors import TraceError
from servetwin.workloads.streams.streamed_trace import Chosen, StreamedTrace
from servetwin.workloads.streams.trace_file import TraceFile


def open_stream(options: TraceOptions, closed_loop: bool | None = None) -> StreamedTrace:
    """Read the trace once. Raises ``TraceError`` for what a stream cannot do."""
    if options.path is None:
        raise TraceError("a stream needs TRACE, a file")
    if closed_loop:
        raise TraceError("--closed-loop needs the whole trace: servetwin replay")
    options.check_rates()
    file = TraceFile(options.path, options.reader, options.max_bad_rows)
    trace = StreamedTrace.open(file, Chosen(options.start_s, options.end_s, options.limit))
    if trace.survey.followers and closed_loop is None:
        raise TraceError(
            f"{options.path}: has requests that follow an answer, which a stream does not; "
            "give --open-loop, or use servetwin replay"
        )
    if options.rate_scale is not None:
        trace = trace.scaled(options.rate_scale)
    return trace if options.rate_per_s is None else trace.at_rate(options.rate_per_s)


def replay_stream(replay: Replay) -> None:
    """Simulate the trace in one pass; print its figures, keep the run."""
    options = replay.replayed
    with options.overwriting.claimed_if_asked(options.out) as claim:
        require_sketches("servetwin replay stream")
        record = replay.servers().settings()
        trace = open_stream(replay.options.trace, replay.options.cluster.closed_loop)
        scenario = replay.scenario(trace)
        folder = claim.begin() if claim else None
        tables = run_tables(scenario, folder, replay.slo)
        try:
            with progress(f"simulating {scenario.name}", total=len(trace)) as advance:
                wall_s = run_streamed(
                    trace, scenario, tables, seed=replay.seed,
                    macro=not replay.replayed.step_by_step, on_arrival=advance,
                )  # fmt: skip
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
