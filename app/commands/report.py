"""``servetwin report``: a run, or several side by side, as one HTML file."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from servetwin.app.scenario.options.common import SLO, Json


def report(
    runs: Annotated[
        list[Path], Argument(metavar="RUN...", help="Folders of replay, loadtest or verify --out.")
    ],
    slo: Annotated[str | None, SLO] = None,
    out: Annotated[Path, Option(help="HTML file to write.")] = Path("report.html"),
    as_json: Json = False,
) -> None:
    """Write one self-contained HTML file: tables, charts, verdicts and scenarios of the RUNs.

    A prediction and load tests of the same requests are compared. A sweep of levels is shown as far
    as it went.
    """
    written = write_html(runs, slo, out)
    if as_json:
        typer.echo(json.dumps(written))
    else:
        count = len(written["runs"])
        several = "1 run" if count == 1 else f"{count} runs"
        _print_sweeps(runs)
        typer.echo(f"{out}: {several}, {written['bytes'] / 1e6:.1f} MB; open it in a browser")


def write_html(folders: list[Path], slo: str | None, out: Path) -> dict[str, Any]:
    """Write the report of run folders: its file, its bytes, the names of its runs."""
    require_plotly()
    from servetwin.app.reports.html.page import render_html
    from servetwin.app.reports.report_folders import find_runs, find_sweeps
    from servetwin.loadtest.report.limits import parse_slo

    limits = parse_slo(slo) if slo else None
    _recover(folders)
    found, trials = find_runs(folders)
    size_bytes = _write(out, render_html(found, trials, limits, find_sweeps(folders)))
    return {"file": str(out), "bytes": size_bytes, "runs": [named.name for named in found]}


def _print_sweeps(folders: list[Path]) -> None:
    """Print the table of each sweep among the folders, perhaps one that still goes on."""
    from servetwin.app.reports.level_sweep import sweep_lines
    from servetwin.app.reports.report_folders import find_sweeps

    for sweep in find_sweeps(folders).values():
        typer.echo("\n".join([*sweep_lines(sweep), ""]))


def _recover(folders: list[Path]) -> None:
    """Make runs of the journals that killed load tests have left in ``folders``.

    Raises ``RunError`` for one that still runs, or has nothing to recover.
    """
    from servetwin.app.reports.report_folders import unsaved_runs
    from servetwin.loadtest.run.recovery import recovered_run
    from servetwin.sim.records.run import RunError
    from servetwin.sim.records.run_claim import ClaimError, claimed_run

    for folder in unsaved_runs(folders):
        try:
            with claimed_run(folder, resume=True):
                run = recovered_run(folder)
                run.save(folder)
        except ClaimError as error:
            raise RunError(f"{folder}: a load test is running there; wait for its end") from error
        typer.echo(f"{folder}: {run.scenario['notes'][-1]}", err=True)


def require_plotly() -> None:
    """Raise ``RunError`` saying how to install them, where plotly or jinja2 is missing."""
    from servetwin.sim.records.run import RunError

    if find_spec("plotly") is None or find_spec("jinja2") is None:
        raise RunError("an HTML report needs plotly and jinja2: pip install 'servetwin[report]'")


def _write(path: Path, page: str) -> int:
    from servetwin.sim.records.run import NotWritten

    data = page.encode("utf-8", "replace")
    try:
        return path.write_bytes(data)
    except OSError as error:
        if path.is_file():
            path.unlink(missing_ok=True)  # the part that fitted is no page
        raise NotWritten(
            f"{path}: the report's {len(data)} bytes could not be written ({error.strerror})"
        ) from error
