"""The answers of the page How many, from the searches that have ended so far."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from servetwin.app.dashboard.how_many.candidates import Candidate
from servetwin.app.dashboard.how_many.search_job import Asked, Impossible, Search
from servetwin.app.dashboard.jobs.job import Job
from servetwin.app.scenario.answers import Answer, of_capacity, of_counts, of_problem
from servetwin.app.scenario.files.scenario_file import GENERATED, ScenarioFile
from servetwin.app.scenario.prices import Prices
from servetwin.sim.experiments.capacity import Capacity
from servetwin.sim.experiments.how_many import CountSearch, HowMany


def answers(
    candidates: Sequence[Candidate],
    asked: Asked,
    first: "Job[Search, Any]",
    draws: "Job[Search, Any] | None",
    prices: Prices,
) -> list[Answer]:
    """Return the answer of every candidate whose first search has ended, in their order."""
    drawn = defaultdict[int, list[CountSearch]](list)
    for place, found in (draws.results if draws else {}).items():
        if draws and isinstance(found, CountSearch):
            drawn[draws.items[place].candidate].append(found)
    results = first.results
    return [
        _answer(candidate, asked, results[place], drawn[place], prices)
        for place, candidate in enumerate(candidates)
        if place in results
    ]


def load_words(file: ScenarioFile) -> str:
    """Return which requests the answer is for."""
    rate = file.workload.rate_per_s
    of = "these requests" if file.workload.source == GENERATED else "this trace"
    return of if rate is None else f"{of} at {rate:g} per second"


def _answer(
    candidate: Candidate, asked: Asked, found: Any, drawn: Sequence[CountSearch], prices: Prices
) -> Answer:
    label, what = candidate.label, asked.what
    if isinstance(found, Impossible):
        return of_problem(label, what, found.problem)
    scenario = candidate.file.settled()
    if isinstance(found, Capacity):
        return of_capacity(label, scenario, found, asked.target, prices)
    return of_counts(label, what, scenario, HowMany(found, tuple(drawn)), prices)
