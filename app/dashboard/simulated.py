"""Scenarios simulated, each once: what was found is shared by all pages and all users.

What is cached is never changed. An uploaded trace belongs to a session; the digest of its file
keeps its results apart from those of another file of that name.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app.dashboard.uploads import uploads
from app.scenario_file import ScenarioFile, Workload
from sim.predict import run_once, summaries_over_seeds
from sim.run import Run
from sim.scenario import Scenario
from workloads.errors import ServetwinError
from workloads.trace import Trace

REPLICATIONS = 10
_MOST_KEPT = 64

Summary = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A scenario with what came of it; ``summary`` with its SLO."""

    file: ScenarioFile
    digest: str
    trace: Trace
    scenario: Scenario
    run: Run
    summary: Summary


def simulated(file: ScenarioFile) -> Outcome:
    """One simulation with the fitted coefficients; raises ``ServetwinError`` of the scenario."""
    given = uploads().get(file.workload.source)
    trace = given.trace if given else None
    return _simulated(file.model_dump_json(), given.digest if given else "", trace)


def simulated_or_stop(file: ScenarioFile) -> Outcome:
    """``simulated``; where that cannot be, the page says why and ends."""
    try:
        return simulated(file)
    except ServetwinError as error:
        st.error(str(error))
        st.stop()


def replications(outcome: Outcome) -> Iterator[Summary]:
    """Summaries over drawn coefficients and noise, one by one; kept once all are there."""
    kept, key = _kept(), (outcome.file.model_dump_json(), outcome.digest)
    if key in kept:
        yield from kept[key]
        return
    found = []
    for summary in summaries_over_seeds(
        outcome.trace, outcome.scenario, outcome.run, seed=outcome.file.seed,
        replications=REPLICATIONS, slo=outcome.file.slo.slo(),
    ):  # fmt: skip
        found.append(summary)
        yield summary
    kept[key] = found
    while len(kept) > _MOST_KEPT:
        kept.pop(next(iter(kept)), None)


@st.cache_resource(max_entries=_MOST_KEPT, show_spinner=False)
def _simulated(text: str, digest: str, _given: Trace | None) -> Outcome:
    file = ScenarioFile.model_validate_json(text)
    workload = file.workload
    trace = (
        workload.trace(file.seed, {workload.source: _given})
        if _given
        else _trace(workload.model_dump_json(), file.seed)
    )
    scenario = file.build(trace)
    run = run_once(trace, scenario, seed=file.seed, keep_usage=True)
    return Outcome(file, digest, trace, scenario, run, run.summary(file.slo.slo()))


@st.cache_resource(max_entries=_MOST_KEPT, show_spinner=False)
def _trace(workload: str, seed: int) -> Trace:
    return Workload.model_validate_json(workload).trace(seed)


@st.cache_resource
def _kept() -> dict[tuple[str, str], list[Summary]]:
    return {}
