"""``servetwin capacity``: the rate, the replicas or the users with which an SLO is kept."""

from dataclasses import replace
from typing import Annotated

from servetwin.app.scenario.options.common import SLO, TracePath
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions, ScenarioOptions
from servetwin.app.scenario.options.simulations import CapacityOptions
from servetwin.app.scenario.options.trace import TraceOptions

_OTHERS = tuple(name for name in ClusterOptions.__dataclass_fields__ if name != "replicas")


@takes_options(
    "--slo", "--attainment", "--profile", "--model", "--gpu", "--replicas", "--users",
    "--vary",
)  # fmt: skip
def capacity(
    trace: TracePath,
    slo: Annotated[str, SLO],
    servers: Deployment,
    policy: PolicyOptions,
    cluster: Annotated[ClusterOptions, _OTHERS],
    part: TraceOptions,
    query: CapacityOptions,
) -> None:
    """Find the highest rate of TRACE at which enough requests meet the SLO, with an interval; or,
    with --replicas, --users or --lanes, how many keep it."""
    from servetwin.app.tasks.capacity import Search
    from servetwin.loadtest.report.limits import parse_slo
    from servetwin.sim.experiments.capacity import SLOTarget

    if part.lanes is not None and query.what == "rate":
        query = replace(query, count=replace(query.count, users=True))
    cluster = replace(cluster, replicas=query.replica_count())
    options = ScenarioOptions(servers, policy, cluster, part)
    target = SLOTarget(parse_slo(slo), query.attainment)
    Search(options.with_trace(trace, query.seed), target, query).report()
