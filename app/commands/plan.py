"""``servetwin plan``: which GPUs, how many and how split hold an SLO, by what they cost."""

from typing import Annotated

from typer import Option

from servetwin.app.scenario.options.common import SLO, Attainment, Seed, TracePath
from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.simulations import PlanOptions
from servetwin.app.scenario.options.trace import TraceOptions

_MODEL = Option(help="The model by its name, or the path of a config.json.")


@takes_options(
    "--model", "--slo", "--attainment", "--gpu", "--price", "--most-gpus", "--rate-scale",
    "--day", "--out",
)  # fmt: skip
def plan(
    trace: TracePath,
    model: Annotated[str, _MODEL],
    slo: Annotated[str, SLO],
    part: TraceOptions,
    options: PlanOptions,
    attainment: Attainment = 0.99,
    seed: Seed = 0,
) -> None:
    """Find the cheapest servers of a model that hold the SLO for TRACE: which GPUs, how many, how
    split, and the command that starts them. --rate-scale 2 plans for twice the load."""
    from dataclasses import replace

    from servetwin.app.plan.printed_plan import print_plan

    print_plan(replace(part, path=trace, seed=seed), model, slo, attainment, options)
