"""``servetwin sweep``: a grid of scenarios and rates, on processes or a Ray cluster."""

from typing import Annotated

from servetwin.app.scenario.options.common import SLO, Attainment, Json, Seed, TracePath
from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.policy import ScenarioOptions
from servetwin.app.scenario.options.simulations import GridOptions


@takes_options(
    "--slo", "--vary", "--rates", "--profile", "--model", "--gpu", "--out", "--plot", "--processes",
)  # fmt: skip
def sweep(
    trace: TracePath,
    slo: Annotated[str, SLO],
    options: ScenarioOptions,
    grid: GridOptions,
    attainment: Attainment = 0.99,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Simulate TRACE at every point of a grid; print and keep the frontier."""
    from servetwin.app.tasks.sweep import sweep_grid

    sweep_grid(options.with_trace(trace, seed), grid, slo, attainment, json)
