"""The question of the page Plan, the policies and servers to answer it for, and their answers."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from servetwin.app.dashboard.explore.comparison import OWN_LABEL, scenario_under
from servetwin.app.dashboard.formatting import page_text
from servetwin.app.dashboard.jobs.job import Job
from servetwin.app.dashboard.plan.search_job import Query, Search
from servetwin.app.dashboard.scenario.allowed_choices import require_all_offered
from servetwin.app.scenario.answers import Answer, What, best, of_capacity, of_counts
from servetwin.app.scenario.files.scenario_file import GENERATED, ScenarioError, ScenarioFile
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.distributions import think_time_of
from servetwin.app.scenario.prices import Prices
from servetwin.sim.experiments.capacity import Capacity, SLOTarget
from servetwin.sim.experiments.how_many import CountSearch, HowMany
from servetwin.sim.records.metrics import SLO

OWN_SERVER = "this server"
# Their looks differ for every eye.
MOST_CANDIDATES = 6
# A label, and the scenario whose number is looked for.
Candidate = tuple[str, ScenarioFile]


def query_of(base: ScenarioFile, what: What, think: str) -> Query:
    """Return the query about the SLO at the side.

    Raises ``ServetwinError`` for an SLO without a limit, or a wrong think time.
    """
    slo, think = base.slo.slo(), think.strip()
    if slo == SLO():
        raise ScenarioError("the SLO has no limit; give one at the side")
    if think:
        think_time_of(think, "think time")
    return Query(what, SLOTarget(slo, base.slo.attainment), think)


def load_words(file: ScenarioFile) -> str:
    """Return which requests the answer is for."""
    rate = file.workload.rate_per_s
    of = "these requests" if file.workload.source == GENERATED else "this trace"
    return of if rate is None else f"{of} at {rate:g} per second"


def candidates(
    base: ScenarioFile, policies: Sequence[str], servers: Sequence[str]
) -> tuple[Candidate, ...]:
    """Return each policy on each server, in the order of the choices.

    Raises ``ServetwinError`` naming what is unknown, and ``ScenarioError`` for none or too many.
    """
    policies, servers = [OWN_LABEL, *policies], servers or [OWN_SERVER]
    if len(policies) * len(servers) > MOST_CANDIDATES:
        counts = {"policies": len(policies), "servers": len(servers), "most": MOST_CANDIDATES}
        raise ScenarioError(page_text("plan.too_many", **counts))
    choices = []
    for server in servers:
        on_server = _on(base, server)
        for policy in policies:
            names = ([server] if len(servers) > 1 else []) + ([policy] if len(policies) > 1 else [])
            file = on_server if policy == OWN_LABEL else scenario_under(on_server, policy)
            choices.append((", ".join(names) or server, file))
    return tuple(choices)


def _on(base: ScenarioFile, server: str) -> ScenarioFile:
    if server == OWN_SERVER:
        return base
    file = base.model_copy(update={"deployment": Deployment(profile=(server,))})
    require_all_offered(file)
    return file


def answers(
    candidates: Sequence[Candidate],
    query: Query,
    first: "Job[Search, Any]",
    draws: "Job[Search, Any] | None",
    prices: Prices,
) -> list[Answer]:
    """Return the answer of every candidate whose first search has ended, in their order."""
    searches = defaultdict[int, list[CountSearch]](list)
    for place, search in (draws.results if draws else {}).items():
        if draws and isinstance(search, CountSearch):
            searches[draws.items[place].candidate].append(search)
    results = first.results
    return [
        _answer(candidate, query, results[place], searches[place], prices)
        for place, candidate in enumerate(candidates)
        if place in results
    ]


def ranked(answers: Sequence[Answer]) -> list[Answer]:
    """Return the answers, the best first."""
    rest, ordered = list(answers), list[Answer]()
    while rest:
        ordered.append(best(rest) or rest[0])
        rest.remove(ordered[-1])
    return ordered


def _answer(
    candidate: Candidate, query: Query, result: Any, draws: Sequence[CountSearch], prices: Prices
) -> Answer:
    (label, file), what = candidate, query.what
    if isinstance(result, str):
        return Answer(label, what, problem=result)
    scenario = file.settled()
    if isinstance(result, Capacity):
        return of_capacity(label, scenario, result, query.target, prices)
    return of_counts(label, what, scenario, HowMany(result, tuple(draws)), prices)
