"""``servetwin compare``: runs against their baseline, and a gate that can say no."""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from servetwin.app.scenario.options.common import GateOptions, Json, Overwriting, PictureOptions
from servetwin.app.scenario.options.groups import Only, takes_options


@takes_options()
def compare(
    first: Annotated[
        Path,
        Argument(metavar="BASELINE", help="Run folder of loadtest or replay, or a folder of runs."),
    ],
    candidates: Annotated[list[Path], Argument(metavar="RUN...", help="What is judged, alike.")],
    options: Annotated[GateOptions, Only("baseline", "allow")],
    picture: PictureOptions,
    overwriting: Overwriting,
    gate: Annotated[
        bool, Option("--gate", help="Exit with 0 if the RUNs hold, 1 if refuted, 3 if unknown.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say whether RUNs are worse than a BASELINE of the same load by more than is allowed.

    All runs of a side count together. What is faster than the baseline holds. Without --gate the
    same requests may have gone to another model, or with other bodies; the report says so.
    """
    sides = [first, *options.baseline], candidates
    plotted = picture.file(overwrite=overwriting.overwrite, runs=sum(map(len, sides)))
    from servetwin.app.reports.claims import render_gate
    from servetwin.app.reports.report_folders import runs_by_folder
    from servetwin.app.verdict.claims import EXIT_CODES
    from servetwin.app.verdict.gate import judge

    limits = options.limits()
    baselines, judged = (
        {str(folder): run for folder, run in runs_by_folder(folders).items()} for folders in sides
    )
    found = judge(baselines, judged, limits, asked_alike=gate)
    typer.echo(json.dumps(found.as_dict()) if as_json else render_gate(found))
    if plotted:
        from servetwin.app.reports.html.picture_file import draw_runs
        from servetwin.app.reports.report_folders import named_runs

        line = draw_runs(plotted, picture.chart, named_runs({**baselines, **judged}), None)
        typer.echo(line, err=as_json)
    if gate and (code := EXIT_CODES[found.outcome]):
        raise typer.Exit(code)
