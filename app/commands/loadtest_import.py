"""``servetwin loadtest import``: make a run folder of what another tool or a server recorded."""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from servetwin.app.scenario.options.common import Json, Overwriting
from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.trace import Columns


@takes_options()
def loadtest_import(
    file: Annotated[
        Path, Argument(metavar="FILE", help="Results of a load tester, stamps, spans, CSV or JSON.")
    ],
    out: Annotated[Path, Option(help="Run folder to write.")],
    overwriting: Overwriting,
    columns: Columns = None,
    as_json: Json = False,
) -> None:
    """Turn a recorded run into a run folder, to be verified, compared or calibrated from.

    Known are vLLM bench serve, SGLang's bench_serving, AIPerf, GuideLLM, inference-perf, stamps of
    vLLM's requests and OpenTelemetry spans. What a format lacks is said, not guessed.
    """
    from servetwin.app.reports.progress import saved
    from servetwin.app.reports.tables import counts_line, latency_table, note_lines
    from servetwin.loadtest.recorded.reading import read_recording
    from servetwin.loadtest.recorded.recorded_run import as_recorded_run
    from servetwin.workloads.tables.mapping import parse_mapping

    recording = read_recording(file, parse_mapping(columns) if columns else None)
    found = as_recorded_run(recording, file.name)
    with overwriting.claimed(out) as claim, saved(found, claim.begin()) as folder:
        summary = found.run.summary()
        if as_json:
            typer.echo(json.dumps({**summary, **found.run.scenario}))
            return
        lines = [
            f"{file.name}: {recording.tool}",
            *note_lines(found.run.scenario["notes"]),
            counts_line(summary["requests"]),
            "",
            *latency_table(summary, {}),
            "",
            f"run folder: {folder}",
        ]
        typer.echo("\n".join(lines))
