"""Make a run folder of what another load tester or a server recorded."""

from pathlib import Path

from servetwin.app.command import print_result
from servetwin.app.reports.progress import saved
from servetwin.app.reports.tables import counts_line, latency_table, note_lines
from servetwin.app.scenario.options.common import Overwriting
from servetwin.loadtest.recorded.reading import read_recording
from servetwin.loadtest.recorded.recorded_run import as_recorded_run
from servetwin.workloads.tables.mapping import parse_mapping


def import_run(
    file: Path, out: Path, overwriting: Overwriting, columns: str | None, as_json: bool
) -> None:
    """Read a recording, keep it as a run, and print its figures."""
    recording = read_recording(file, parse_mapping(columns) if columns else None)
    recorded = as_recorded_run(recording, file.name)
    run = recorded.run
    with overwriting.claimed(out) as claim, saved(recorded, claim.begin()) as folder:
        summary = run.summary()
        lines = [
            f"{file.name}: {recording.tool}",
            *note_lines(run.scenario["notes"]),
            counts_line(summary["requests"]),
            "",
            *latency_table(summary, {}),
            "",
            f"run folder: {folder}",
        ]
        print_result(as_json, {**summary, **run.scenario}, lines)
