"""``servetwin capacity``: the highest request rate at which a server keeps its SLO."""

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from app.scenario.common_options import MOST_REPLICATIONS, SLO, Attainment, Json, Seed, TracePath
from app.scenario.option_groups import takes_options
from app.scenario.scenario_options import ScenarioOptions
from app.text.progress import progress
from workloads.errors import PolicyError

if TYPE_CHECKING:
    from sim.experiments.capacity import SLOTarget


@takes_options
def capacity(
    trace: TracePath,
    slo: Annotated[str, SLO],
    options: ScenarioOptions,
    attainment: Attainment = 0.99,
    replications: Annotated[
        int,
        Option(
            help="Draws behind the interval, of engine and traffic; 0 for none.",
            min=0,
            max=MOST_REPLICATIONS,
        ),
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
    from sim.experiments.capacity import find_capacity

    target = _target(slo, attainment)
    options = options.with_trace(trace, seed)
    servers = options.servers.servers()
    requests = options.trace.read()
    scenario = build_scenario(requests, servers, options.policy, options.cluster)
    with progress("capacity, replications", total=replications) as advance:
        found = find_capacity(
            requests, scenario, target, seed=seed, replications=replications,
            precision=precision, processes=processes, on_replication=advance,
        )  # fmt: skip
    highest = found.tried[-1].summary["provenance"]
    if warning := outside_warning(highest, widened=found.replications > 1):
        typer.echo(warning, err=True)
    if json:
        typer.echo(as_json(found, target, requests, scenario, options))
    else:
        record = options.servers.record()
        typer.echo("\n".join(report_lines(found, target, requests, scenario, record)))


def _target(slo: str, attainment: float) -> "SLOTarget":
    from loadtest.report.slo import parse_slo
    from sim.experiments.capacity import SLOTarget

    if not attainment:
        raise PolicyError(f"--attainment: {attainment:g} is no share; 0.99 is 99 of 100 requests")
    return SLOTarget(parse_slo(slo), attainment)
