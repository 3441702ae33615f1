"""``servetwin sweep``: a grid of scenarios and rates, on processes or a Ray cluster."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from servetwin.app.reports.progress import progress
from servetwin.app.scenario.options.common import (
    SLO,
    Attainment,
    Json,
    Overwriting,
    Ray,
    Seed,
    TracePath,
    Vary,
)
from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.policy import ScenarioOptions
from servetwin.workloads.errors import ServetwinError

if TYPE_CHECKING:
    from servetwin.app.scenario.files.sweep_file import SweepFile
    from servetwin.sim.experiments.sweep import GridConditions, GridPoint, Row


@dataclass(frozen=True, slots=True)
class Grid:
    """What is varied, where its points are simulated, and the file that has them."""

    vary: Vary = ()
    rates: Annotated[str | None, Option(metavar="R,R")] = None
    """Requests/s at each point; else the trace's own."""
    processes: Annotated[int | None, Option(min=1, max=512)] = None
    """Points side by side; else one per core."""
    ray: Ray = None
    out: Annotated[Path | None, Option()] = None
    """Frame to write (.csv, .parquet), or to continue."""

    def rows(
        self,
        conditions: "GridConditions",
        points: Sequence["GridPoint"],
        called: Callable[[int], str],
    ) -> Iterator[tuple[int, "Row"]]:
        """Yield the place and the row of each point as it is simulated; raises ``LostItems``."""
        from servetwin.sim.experiments.parallel_map import map_on_processes
        from servetwin.sim.experiments.ray_cluster import map_on_ray
        from servetwin.sim.experiments.sweep import simulate_point

        if self.ray is not None:
            return map_on_ray(simulate_point, conditions, points, self.ray or None, called)
        workers = self.processes or os.cpu_count() or 1
        return map_on_processes(simulate_point, conditions, points, workers, called)


@takes_options(
    "--slo", "--vary", "--rates", "--profile", "--model", "--hardware", "--out", "--processes",
)  # fmt: skip
def sweep(
    trace: TracePath,
    slo: Annotated[str, SLO],
    options: ScenarioOptions,
    grid: Grid,
    overwriting: Overwriting,
    attainment: Attainment = 0.99,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Simulate TRACE at every point of a grid; print and keep the frontier."""
    from servetwin.app.reports.sweep import as_json, report_text
    from servetwin.app.scenario.files.sweep_file import RATE, SweepFile, identity
    from servetwin.app.scenario.sweep_axes import combinations, parse_axis, parse_rates
    from servetwin.loadtest.report.limits import parse_slo
    from servetwin.sim.experiments.parallel_map import LostItems
    from servetwin.sim.experiments.sweep import PROBLEM, GridConditions
    from servetwin.sim.records.run_claim import claimed_file

    axes = [parse_axis(text) for text in grid.vary]
    limits, keys = parse_slo(slo), [axis.key for axis in axes]
    levels = parse_rates(grid.rates) if grid.rates else (None,)
    varied = list(combinations(axes))
    options = options.with_trace(trace, seed)
    requests = options.trace.read()
    wanted = [{**values, RATE: rate} for values in varied for rate in levels]
    mark = identity(options, requests, limits, keys)
    conditions, lost = GridConditions(requests, limits, seed), None
    with (
        claimed_file(grid.out) if grid.out else nullcontext(),
        SweepFile(grid.out, keys, wanted, mark, overwriting.overwrite) as found,
    ):
        try:
            _simulate(wanted, options, conditions, found, grid)
        except LostItems as error:
            lost = error
    frame = found.frame()
    if len(frame):
        as_text = as_json if json else report_text
        typer.echo(as_text(frame, keys, attainment))
    if lost:
        raise lost
    if grid.out and not json:
        typer.echo(f"all points: {grid.out}")
    if all(frame[PROBLEM]):
        raise ServetwinError(f"no point can be simulated: {frame[PROBLEM].iloc[0]}")


def _simulate(
    wanted: Sequence[dict[str, Any]],
    options: ScenarioOptions,
    conditions: "GridConditions",
    found: "SweepFile",
    grid: Grid,
) -> None:
    from servetwin.app.reports.sweep import named
    from servetwin.app.scenario.files.sweep_file import RATE
    from servetwin.app.scenario.sweep_axes import scenario_at
    from servetwin.sim.experiments.sweep import PROBLEM, GridPoint

    ready: list[tuple[dict[str, Any], GridPoint]] = []
    missing = [point for point in wanted if point not in found]
    if done := len(wanted) - len(missing):
        typer.echo(f"{done} of {len(wanted)} points are in {grid.out}", err=True)
    notes: dict[str, None] = {}
    for place in missing:
        values = {key: value for key, value in place.items() if key != RATE}
        try:
            scenario = scenario_at(options, conditions.trace, values, notes.setdefault)
        except ServetwinError as error:
            found.add(place, {PROBLEM: str(error)})
        else:
            ready.append((place, GridPoint(scenario, place[RATE])))
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    with progress("sweep, points", total=len(ready)) as advance:
        points = [point for _, point in ready]
        rows = grid.rows(conditions, points, lambda number: named(ready[number][0]))
        for done, (number, row) in enumerate(rows, 1):
            found.add(ready[number][0], row)
            advance(done)
