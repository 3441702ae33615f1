"""``servetwin loadtest --baseline-url``: the same load to two servers in turns."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from servetwin.app.commands.load.sent_load import LoadTest, server_said
from servetwin.app.reports.load_test import LoadTestReport, gate_complaint
from servetwin.app.reports.progress import saved

if TYPE_CHECKING:
    from servetwin.loadtest.endpoint import Endpoint
    from servetwin.loadtest.report.limits import Finding
    from servetwin.sim.records.run import Run


class Sides(NamedTuple):
    """The runs of both servers, by folder."""

    baseline: "dict[str, Run]"
    judged: "dict[str, Run]"


def run_in_turns(test: LoadTest, judged: "Endpoint", baseline: "Endpoint", turns: int) -> Sides:
    """Send the load to both in turns, the baseline first and last: A/B/A.

    The runs are in ``baseline/1``, ``run/1``, ``baseline/2`` ... of the folder of the test. Each
    has prompts of its own, so that no prefix cache favours the second run of a server.
    """
    from servetwin.loadtest.run.event_loop import signals_deferred

    sides = Sides({}, {})
    for turn in range(2 * turns + 1):
        side = turn % 2
        at = test.folder / ("baseline", "run")[side] / str(turn // 2 + 1)
        at.mkdir(parents=True, exist_ok=True)
        run, watch = replace(test, folder=at).of((baseline, judged)[side].salted("turn", turn))
        with signals_deferred(), saved(run, at) as kept:
            typer.echo(f"{kept}: {server_said(watch, run, kept)}", err=True)
            sides[side][str(kept)] = run
        if run.extra["delivered"]["interrupted"]:
            typer.echo(f"servetwin: interrupted: the runs are in {test.folder}", err=True)
            raise typer.Exit(1)
    return sides


def report_turns(
    sides: Sides,
    allowed: Mapping[str, float],
    as_json: bool,
    find: "Callable[[Run], list[Finding]]",
) -> None:
    """Print the verdict on the judged server; end with its exit code where it is not good.

    ``find`` says which conditions a run of the judged server fails.
    """
    from servetwin.app.reports.claims import render_gate
    from servetwin.app.verdict.gate import judge

    found = judge(*sides, allowed)
    typer.echo(dumps(found.as_dict()) if as_json else render_gate(found))
    reports = [LoadTestReport(run, Path(at), None, find(run)) for at, run in sides.judged.items()]
    wrongs = [report.complaint() for report in reports]
    if wrong := next(filter(None, [*wrongs, gate_complaint(found)]), None):
        typer.echo(f"servetwin: {wrong[0]}", err=True)
        raise typer.Exit(wrong[1])
