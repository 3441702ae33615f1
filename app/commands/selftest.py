"""``servetwin selftest``: the simulator meets queueing theory, on this machine."""

import json
import os
from itertools import groupby
from operator import call
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from servetwin.app.reports.progress import progress
from servetwin.app.scenario.options.common import Json

if TYPE_CHECKING:
    from servetwin.sim.theory.selftest.judge import FigureCheck


def selftest(
    only: Annotated[
        list[str] | None, Option(metavar="NAME", help="Only this scenario; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate servers whose figures theory knows exactly, and compare; under a minute."""
    from servetwin.sim.experiments.parallel_map import map_on_processes
    from servetwin.sim.theory.selftest.judge import cases_named, judge_named

    names = [scenario.name for scenario in cases_named(only or ())]
    judged: dict[int, list[FigureCheck]] = {}
    with progress("selftest, scenarios", total=len(names)) as advance:
        for place, found in map_on_processes(call, judge_named, names, os.cpu_count() or 1):
            judged[place] = found
            advance(len(judged))
    outcomes = [outcome for place in sorted(judged) for outcome in judged[place]]
    typer.echo(_as_json(outcomes) if as_json else _as_text(outcomes))
    failed = sum(not outcome.holds for outcome in outcomes)
    if failed:
        typer.echo(f"servetwin: {failed} of {len(outcomes)} figures do not hold", err=True)
        raise typer.Exit(1)


def _as_text(outcomes: list["FigureCheck"]) -> str:
    from servetwin.sim.theory.selftest.judge import CASES

    lines = [f"{'':<28}{'exact':>12}{'measured':>12}{'+- 99.9 %':>12}"]
    for scenario, of_one in groupby(outcomes, key=lambda outcome: outcome.scenario):
        lines.append(f"{scenario}: {CASES[scenario].setting}")
        lines += [
            f"  {outcome.figure:<26}{outcome.exact:>12.6g}{outcome.measured:>12.6g}"
            f"{outcome.half_width:>12.2g}  {outcome.verdict}"
            for outcome in of_one
        ]
    holding = sum(outcome.holds for outcome in outcomes)
    return "\n".join([*lines, f"{holding} of {len(outcomes)} figures hold"])


def _as_json(outcomes: list["FigureCheck"]) -> str:
    from servetwin.sim.theory.selftest.judge import CASES, CONFIDENCE, SEED

    figures = [
        {**outcome.as_dict(), "setting": CASES[outcome.scenario].setting} for outcome in outcomes
    ]
    holds = all(outcome.holds for outcome in outcomes)
    return json.dumps({"holds": holds, "confidence": CONFIDENCE, "seed": SEED, "figures": figures})
