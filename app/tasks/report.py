"""Write runs as one HTML file; runs of load tests that were killed are recovered first."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from servetwin.app.reports.level_sweep import sweep_lines
from servetwin.app.reports.report_folders import find_runs, find_sweeps, unsaved_runs
from servetwin.loadtest.report.limits import parse_slo
from servetwin.loadtest.run.recovery import recovered_run
from servetwin.sim.records.run import NotWritten, RunError
from servetwin.sim.records.run_claim import ClaimError, claimed_run


def report(folders: Sequence[Path], slo: str | None, out: Path, as_json: bool) -> None:
    """Write the report and print where it is, with the table of each sweep."""
    written = write_html(folders, slo, out)
    if as_json:
        typer.echo(json.dumps(written))
        return
    count = len(written["runs"])
    for sweep in find_sweeps(folders).values():
        typer.echo("\n".join([*sweep_lines(sweep), ""]))
    several = "1 run" if count == 1 else f"{count} runs"
    typer.echo(f"{out}: {several}, {written['bytes'] / 1e6:.1f} MB; open it in a browser")


def write_html(folders: Sequence[Path], slo: str | None, out: Path) -> dict[str, Any]:
    """Write the report of run folders: its file, its bytes, the names of its runs."""
    require_plotly()
    from servetwin.app.reports.html.page import render_html

    limits = parse_slo(slo) if slo else None
    for folder in unsaved_runs(folders):
        _recover(folder)
    runs, trials = find_runs(folders)
    data = render_html(runs, trials, limits, find_sweeps(folders)).encode("utf-8", "replace")
    try:
        out.write_bytes(data)
    except OSError as error:
        if out.is_file():
            out.unlink(missing_ok=True)  # the part that fitted is no page
        raise NotWritten(
            f"{out}: the report's {len(data)} bytes could not be written ({error.strerror})"
        ) from error
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
