"""``servetwin sweep``: a grid of scenarios and rates, on processes or a Ray cluster."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from app.scenario.common_options import SLO, Attainment, Json, Seed, TracePath
from app.scenario.option_groups import takes_options
from app.scenario.scenario_options import ScenarioOptions
from app.text.progress import progress
from workloads.errors import ServetwinError

if TYPE_CHECKING:
    from app.scenario.sweep_file import SweepFile
    from sim.experiments.sweep import GridConditions, GridPoint, Row


@takes_options
def sweep(
    trace: TracePath,
    slo: Annotated[str, SLO],
    options: ScenarioOptions,
    vary: Annotated[
        tuple[str, ...],
        Option(metavar="KEY=A,B", help="A setting and its values: max_seqs=16,64; repeatable."),
    ] = (),
    rates: Annotated[
        str | None, Option(metavar="R,R", help="Requests/s at each point; else the trace's own.")
    ] = None,
    attainment: Attainment = 0.99,
    processes: Annotated[
        int | None, Option(help="Points side by side; else one per core.", min=1, max=512)
    ] = None,
    ray: Annotated[bool, Option("--ray", help="On a Ray cluster (needs ray).")] = False,
    out: Annotated[
        Path | None, Option(help="Frame to write (.csv, .parquet), or to continue.")
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Simulate TRACE at every point of a grid; print and keep the frontier."""
    from app.scenario.sweep_axes import grid, parse_axis, parse_rates
    from app.scenario.sweep_file import RATE, SweepFile, identity
    from loadtest.report.slo import parse_slo
    from sim.experiments.sweep import GridConditions

    axes = [parse_axis(text) for text in vary]
    limits, keys = parse_slo(slo), [axis.key for axis in axes]
    levels = parse_rates(rates) if rates else (None,)
    combinations = list(grid(axes))
    options = options.with_trace(trace, seed)
    requests = options.trace.read()
    wanted = [{**values, RATE: rate} for values in combinations for rate in levels]
    found = SweepFile(out, keys, wanted, identity(options, requests, limits, keys))
    missing = [point for point in wanted if point not in found]
    if len(missing) < len(wanted):
        typer.echo(f"{len(wanted) - len(missing)} of {len(wanted)} points are in {out}", err=True)
    conditions = GridConditions(requests, limits, seed)
    _simulate(missing, options, conditions, found, ray, processes)
    _print(found, keys, attainment, json, out)


def _simulate(
    missing: Sequence[dict[str, Any]],
    options: ScenarioOptions,
    conditions: "GridConditions",
    found: "SweepFile",
    ray: bool,
    processes: int | None,
) -> None:
    from app.scenario.sweep_axes import scenario_at
    from app.scenario.sweep_file import RATE
    from sim.experiments.sweep import PROBLEM, GridPoint

    ready: list[tuple[dict[str, Any], GridPoint]] = []
    for place in missing:
        values = {key: value for key, value in place.items() if key != RATE}
        try:
            scenario = scenario_at(options, conditions.trace, values)
        except ServetwinError as error:
            found.add(place, {PROBLEM: str(error)})
        else:
            ready.append((place, GridPoint(scenario, place[RATE])))
    with progress("sweep, points", total=len(ready)) as advance:
        points = [point for _, point in ready]
        for done, (number, row) in enumerate(_rows(conditions, points, ray, processes), 1):
            found.add(ready[number][0], row)
            advance(done)


def _rows(
    conditions: "GridConditions", points: Sequence["GridPoint"], ray: bool, processes: int | None
) -> Iterator[tuple[int, "Row"]]:
    from sim.experiments.parallel_map import map_on_processes, map_on_ray
    from sim.experiments.sweep import simulate_point

    if ray:
        return map_on_ray(simulate_point, conditions, points)
    workers = processes or os.cpu_count() or 1
    return map_on_processes(simulate_point, conditions, points, workers)


def _print(
    found: "SweepFile", keys: Sequence[str], attainment: float, json: bool, out: Path | None
) -> None:
    from app.text.sweep_report import as_json, report_lines

    frame = found.frame()
    if json:
        typer.echo(as_json(frame, keys, attainment))
    else:
        kept = [f"all points: {out}"] if out else []
        typer.echo("\n".join([*report_lines(frame, keys, attainment), *kept]))
