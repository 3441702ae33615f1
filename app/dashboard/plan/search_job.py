"""One search of the page Plan, in a process without Streamlit."""

from dataclasses import dataclass, replace

from servetwin.app.dashboard.jobs.simulated_items import built
from servetwin.app.scenario.answers import FEWEST, What
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.scenario.options.distributions import think_time_of
from servetwin.sim.experiments.capacity import Capacity, Replications, SLOTarget, find_capacity
from servetwin.sim.experiments.fleet import Replicas, ScaledScenario, Users
from servetwin.sim.experiments.how_many import (
    CountQuestion,
    CountSearch,
    search,
    search_drawn,
)
from servetwin.workloads.errors import ServetwinError

# The largest number that is tried here; any other with ``servetwin capacity --most``.
MOST: dict[What, int] = {"replicas": 256, "devices": 256, "users": 1024}
RATE_DRAWS = 10


@dataclass(frozen=True, slots=True)
class Query:
    """The question about every candidate; ``think`` is as for ``--think-time``, empty for none."""

    what: What
    target: SLOTarget
    think: str = ""

    def key(self) -> str:
        """Return a text that tells it from every other question about the same number."""
        kind = "replicas" if self.what in FEWEST else self.what
        return repr(replace(self, what=kind))


@dataclass(frozen=True, slots=True)
class Search:
    """A search of a candidate: the first one, or replication ``number`` around ``first``.

    ``candidate`` is its place on the page.
    """

    file: ScenarioFile
    query: Query
    number: int = 0
    first: CountSearch | None = None
    given: bytes | None = None
    candidate: int = 0


# What a search finds, or why a candidate has no answer.
Found = CountSearch | Capacity | str


def run_search(one: Search) -> Found:
    """Return what a search finds, or why a candidate cannot be."""
    try:
        return _found(one)
    except ServetwinError as error:
        return str(error)
    except ArithmeticError as error:
        return f"a setting is too large or too small to simulate ({error})"


def _found(one: Search) -> CountSearch | Capacity:
    query, seed = one.query, one.file.seed
    trace, scenario = built(one.file, one.given)
    if query.what == "rate":
        draws = Replications(RATE_DRAWS)
        return find_capacity(trace, scenario, query.target, seed=seed, replications=draws)
    counted: ScaledScenario = Replicas(trace, scenario)
    if query.what == "users":
        counted = Users(trace, scenario, think_time_of(query.think) if query.think else None, seed)
    question = CountQuestion(query.target, MOST[query.what], seed)
    if one.first is None:
        return search(counted, question)
    return search_drawn(counted, question, one.first, one.number)
