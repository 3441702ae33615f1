"""``servetwin capacity``: the highest request rate at which a server keeps its SLO."""

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from app.scenario.common_options import SLO, Attainment, Json, Seed, TracePath
from app.scenario.option_groups import takes_options
from app.scenario.scenario_options import ScenarioOptions

if TYPE_CHECKING:
    from sim.experiments.capacity import Capacity, SLOTarget
    from sim.experiments.scenario import Scenario
    from workloads.trace import Trace


@takes_options
def capacity(
    trace: TracePath,
    slo: Annotated[str, SLO],
    options: ScenarioOptions,
    attainment: Attainment = 0.99,
    replications: Annotated[
        int, Option(help="Simulated engines behind the interval; 0 for none.", min=0)
    ] = 10,
    precision: Annotated[
        float, Option(help="Relative width at which a search ends.", min=1e-6, max=1)
    ] = 0.01,
    processes: Annotated[int, Option(help="Replications side by side.", min=1, max=512)] = 1,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Find the highest rate of TRACE at which enough requests meet the SLO, with an interval."""
    from app.scenario.scenarios import build_scenario
    from app.text.capacity_report import as_json, report_lines
    from app.text.provenance import outside_warning

    target = _target(slo, attainment)
    options = options.with_trace(trace, seed)
    servers = options.servers.base()
    requests = options.trace.read()
    scenario = build_scenario(requests, servers, options.policy, options.cluster)
    found = _searched(requests, scenario, target, seed, replications, precision, processes)
    highest = found.tried[-1].summary["provenance"]
    if warning := outside_warning(highest, widened=bool(found.replications)):
        typer.echo(warning, err=True)
    if json:
        typer.echo(as_json(found, target, requests, scenario, options))
        return
    for line in report_lines(found, target, requests, scenario):
        typer.echo(line)


def _target(slo: str, attainment: float) -> "SLOTarget":
    from loadtest.report.slo import parse_slo
    from sim.experiments.capacity import SLOTarget
    from workloads.errors import PolicyError

    if not 0 < attainment <= 1:
        raise PolicyError(f"--attainment: {attainment:g} is no share; 0.99 is 99 of 100 requests")
    return SLOTarget(parse_slo(slo), attainment)


def _searched(
    trace: "Trace",
    scenario: "Scenario",
    target: "SLOTarget",
    seed: int,
    replications: int,
    precision: float,
    processes: int,
) -> "Capacity":
    from app.text.progress import progress
    from sim.experiments.capacity import find_capacity

    with progress("capacity, replications", total=replications) as advance:
        return find_capacity(
            trace, scenario, target, seed=seed, replications=replications,
            precision=precision, processes=processes, on_replication=advance,
        )  # fmt: skip
