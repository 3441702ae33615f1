"""Write runs as one HTML file; runs of load tests that were killed are recovered first."""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from servetwin.app.command import print_result
from servetwin.app.last_net import is_out_of_memory
from servetwin.app.reports.level_sweep import sweep_lines
from servetwin.app.reports.load_test import LoadVerdict
from servetwin.app.reports.report_folders import REPORT, find_runs, find_sweeps, unsaved_runs
from servetwin.loadtest.report.limits import parse_slo
from servetwin.loadtest.run.recovery import recovered_run
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import JOURNAL, NotWritten, RunError, save_files, write_files
from servetwin.sim.records.run_claim import ClaimError, claimed_run


def report(folders: Sequence[Path], slo: str | None, out: Path, as_json: bool) -> None:
    """Write the report and print where it is, with the table of each sweep."""
    written = write_html(folders, parse_slo(slo) if slo else None, out)
    count = len(written["runs"])
    several = "1 run" if count == 1 else f"{count} runs"
    line = f"{out}: {several}, {written['bytes'] / 1e6:.1f} MB; open it in a browser"
    swept = (row for one in find_sweeps(folders).values() for row in (*sweep_lines(one), ""))
    print_result(as_json, written, [*swept, line])


def keep_reports(
    folders: Sequence[Path], record: Mapping[str, Any], rows: pd.DataFrame, limits: SLO | None
) -> None:
    """Write the report of the first folder into it: as JSON, as CSV, and as a page.

    The page has all ``folders``; a line says where there is none, as without plotly.
    """
    files = [
        (REPORT, json.dumps(record).encode()),
        ("report.csv", rows.to_csv(index=False).encode()),
    ]
    save_files(folders[0], lambda: files)
    try:
        for folder in unsaved_runs(folders):  # of a level that was cut short
            _keep_ended(folder)
        write_html(folders, limits, folders[0] / "report.html")
    except Exception as error:
        if not (isinstance(error, RunError) or is_out_of_memory(error)):
            raise
        typer.echo(f"servetwin: no report.html: {str(error) or 'out of memory'}", err=True)


def _keep_ended(folder: Path) -> None:
    """Save what had ended by the journal of a folder that this command has claimed."""
    try:
        recovered_run(folder).save(folder)
    except RunError:  # Nothing had.
        (folder / JOURNAL).unlink(missing_ok=True)


def end_with(verdict: LoadVerdict | None) -> None:
    """End the command with the exit code of a verdict, unless that is PASS."""
    if verdict and verdict.exit_code:
        typer.echo(f"servetwin: {verdict.reason}", err=True)
        raise typer.Exit(verdict.exit_code)


def write_html(folders: Sequence[Path], limits: SLO | None, out: Path) -> dict[str, Any]:
    """Write the report of run folders: its file, its bytes, the names of its runs."""
    require_plotly()
    from servetwin.app.reports.html.page import render_html

    for folder in unsaved_runs(folders):
        _recover(folder)
    runs, trials = find_runs(folders)
    data = render_html(runs, trials, limits, find_sweeps(folders)).encode("utf-8", "replace")
    for lost in write_files(out.parent, [(out.name, data)]):
        size = f"the report's {len(data)} bytes"
        raise NotWritten(f"{out}: {size} could not be written ({lost.reason})")
    return {"file": str(out), "bytes": len(data), "runs": [named.name for named in runs]}


def require_plotly() -> None:
    """Raise ``RunError`` saying how to install them, where plotly or jinja2 is missing."""
    if find_spec("plotly") is None or find_spec("jinja2") is None:
        raise RunError("an HTML report needs plotly and jinja2: pip install 'servetwin[report]'")


def _recover(folder: Path) -> None:
    """Make a run of the journal that a killed load test has left.

    Raises ``RunError`` for one that still runs, or has nothing to recover.
    """
    try:
        with claimed_run(folder, resume=True):
            run = recovered_run(folder)
            run.save(folder)
    except ClaimError as error:
        raise RunError(f"{folder}: a load test is running there; wait for its end") from error
    typer.echo(f"{folder}: {run.scenario['notes'][-1]}", err=True)
