"""Simulate every point of a grid, keep each as it ends, and print the frontier."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import typer

from servetwin.app.reports.progress import progress
from servetwin.app.reports.sweep import as_json, named, report_text
from servetwin.app.scenario.files.sweep_file import RATE, Point, SweepFile, identity
from servetwin.app.scenario.options.policy import ScenarioOptions
from servetwin.app.scenario.options.simulations import GridOptions
from servetwin.app.scenario.sweep_axes import combinations, parse_rates, scenario_at, swept_axes
from servetwin.app.words import print_notes
from servetwin.loadtest.report.limits import parse_slo
from servetwin.sim.experiments import sweep
from servetwin.sim.experiments.parallel_map import LostItems
from servetwin.sim.experiments.sweep import PROBLEM, GridConditions, GridPoint
from servetwin.sim.records.run_claim import claimed_file
from servetwin.workloads.errors import EndedEarly, ServetwinError


def sweep_grid(
    options: ScenarioOptions, grid: GridOptions, slo: str, attainment: float, json: bool
) -> None:
    """Simulate the points that the file lacks, and print the frontier of all."""
    axes = swept_axes(grid.vary, options.servers)
    limits, keys = parse_slo(slo), [axis.key for axis in axes]
    rates = parse_rates(grid.rates) if grid.rates else (None,)
    varied, picture = list(combinations(axes)), grid.picture(len({*rates}))
    trace = options.trace.read()
    points = [{**values, RATE: rate} for values in varied for rate in rates]
    mark = identity(options, trace, limits, keys)
    conditions = GridConditions(trace, limits, options.trace.seed)
    lost: ServetwinError | None = None
    with (
        claimed_file(grid.out) if grid.out else nullcontext(),
        SweepFile(grid.out, keys, points, mark, grid.overwriting.overwrite) as rows,
    ):
        try:
            _simulate(points, options, conditions, rows, grid)
        except LostItems as error:
            lost = error
        except KeyboardInterrupt:
            done = sum(point in rows for point in points)
            kept = f" are in {grid.out}; the same command goes on from there" if grid.out else ""
            lost = EndedEarly(f"interrupted: {done} of {len(points)} points{kept or ' were done'}")
    frame = rows.frame()
    if len(frame):
        if not json and not any(axis.names_server for axis in axes):
            typer.echo(options.servers.scenario().profile.describe()[0])
        typer.echo((as_json if json else report_text)(frame, keys, attainment))
    if lost:
        raise lost
    if picture:
        from servetwin.app.figures.paper import curve

        size_bytes = picture.draw(curve(frame, grid.curve, keys, limits))
        typer.echo(f"figure: {picture.path}, {size_bytes / 1e3:,.0f} kB", err=json)
    if grid.out and not json:
        typer.echo(f"all points: {grid.out}")
    if all(frame[PROBLEM]):
        raise ServetwinError(f"no point can be simulated: {frame[PROBLEM].iloc[0]}")


def _simulate(
    points: Sequence[Point],
    options: ScenarioOptions,
    conditions: GridConditions,
    rows: SweepFile,
    grid: GridOptions,
) -> None:
    ready: list[tuple[Point, GridPoint]] = []
    missing = [point for point in points if point not in rows]
    if done := len(points) - len(missing):
        typer.echo(f"{done} of {len(points)} points are in {grid.out}", err=True)
    notes: dict[str, None] = {}
    for point in missing:
        values = {key: value for key, value in point.items() if key != RATE}
        try:
            scenario = scenario_at(options, conditions.trace, values, notes.setdefault)
        except ServetwinError as error:
            rows.add(point, {PROBLEM: str(error)})
        else:
            ready.append((point, GridPoint(scenario, point[RATE])))
    print_notes(notes)
    with progress("sweep, points", total=len(ready)) as advance:
        scenarios = [scenario for _, scenario in ready]
        simulate = partial(sweep.simulate_point, conditions)
        simulated = grid.map(simulate, scenarios, lambda n: named(ready[n][0]))
        for done, (number, row) in enumerate(simulated, 1):
            rows.add(ready[number][0], row)
            advance(done)
