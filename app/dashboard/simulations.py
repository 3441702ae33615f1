"""Simulations of scenarios, each run once and shared by all pages and all users.

A cached result is never changed. An uploaded trace belongs to a session; the digest of its file
keeps its results apart from another file of the same name. The SLO changes nothing that is
simulated, only what is counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from app.dashboard.scenario.allowed_choices import require_all_offered
from app.dashboard.scenario.uploads import uploads
from app.dashboard.widgets import keep_newest, or_stop
from app.scenario.scenario_file import Limits, ScenarioError, ScenarioFile, Workload
from sim.experiments.predict import run_once, summaries_over_seeds
from sim.experiments.scenario import Scenario
from sim.records.run import Run
from workloads.trace import Trace

REPLICATIONS = 20
_MOST_KEPT = 64

Summary = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SimulatedScenario:
    """A scenario with its run; ``summary`` is computed with its SLO."""

    file: ScenarioFile
    digest: str
    trace: Trace
    scenario: Scenario
    run: Run
    summary: Summary

    @property
    def is_drawn(self) -> bool:
        """Return whether its replications differ, by their workloads or by random choices."""
        return self.file.workload.is_generated or not self.scenario.is_repeatable()


def simulate(file: ScenarioFile) -> SimulatedScenario:
    """Return one simulation with the fitted coefficients.

    Raises ``ServetwinError`` where the scenario cannot run.
    """
    require_all_offered(file)
    given = uploads().get(file.workload.source)
    digest, trace = (given.digest, given.trace) if given else ("", None)
    try:
        found = _simulated(_without_slo(file), digest, trace)
    except ArithmeticError as error:
        raise ScenarioError(f"a setting is too large or too small to simulate ({error})") from error
    return SimulatedScenario(file, digest, *found, found[-1].summary(file.slo.slo()))


def simulate_or_stop(file: ScenarioFile) -> SimulatedScenario:
    """Return ``simulate(file)``; where the scenario cannot run, show why and end the page."""
    return or_stop(lambda: simulate(file))


def replications(outcome: SimulatedScenario) -> Iterator[Summary]:
    """Yield summaries over drawn coefficients and noise, and over draws of a generated workload.

    They are kept once all are there. Replication r of a seed draws the same in every scenario
    (common random numbers), so that common variation cancels in a difference.
    """
    kept, key = _kept(), (outcome.file.model_dump_json(), outcome.digest)
    if key in kept:
        yield from kept[key]
        return
    found = []
    for summary in summaries_over_seeds(
        outcome.trace, outcome.scenario, outcome.run, seed=outcome.file.seed,
        replications=REPLICATIONS if outcome.is_drawn else 1, slo=outcome.file.slo.slo(),
        redraw=outcome.file.redraw if outcome.file.workload.is_generated else None,
    ):  # fmt: skip
        found.append(summary)
        yield summary
    keep_newest(kept, {key: found}, _MOST_KEPT)


def finished_replications(outcome: SimulatedScenario) -> list[Summary]:
    """Return all kept ``replications``; none where they are not all there yet."""
    return _kept().get((outcome.file.model_dump_json(), outcome.digest), [])


def steps_with_usage(outcome: SimulatedScenario) -> pd.DataFrame:
    """Return the steps with the use of the KV memory (``policies.protocols.KVUsage``).

    Looking that up takes longer than simulating, so only pages that show it call this.
    """
    return _usage(_without_slo(outcome.file), outcome.digest, outcome)


@st.cache_resource(max_entries=_MOST_KEPT, show_spinner=False)
def _simulated(text: str, digest: str, _given: Trace | None) -> tuple[Trace, Scenario, Run]:
    file = ScenarioFile.model_validate_json(text)
    workload = file.workload
    if _given:
        trace = workload.trace(file.seed, {workload.source: _given})
    else:
        trace = _trace(workload.model_dump_json(), file.seed)
    scenario = file.build(trace)
    return trace, scenario, run_once(trace, scenario, seed=file.seed)


@st.cache_resource(max_entries=_MOST_KEPT, show_spinner=False)
def _trace(workload: str, seed: int) -> Trace:
    return Workload.model_validate_json(workload).trace(seed)


@st.cache_resource(max_entries=_MOST_KEPT, show_spinner=False)
def _usage(text: str, digest: str, _outcome: SimulatedScenario) -> pd.DataFrame:
    trace, scenario, seed = _outcome.trace, _outcome.scenario, _outcome.file.seed
    return run_once(trace, scenario, seed=seed, keep_usage=True).steps


@st.cache_resource
def _kept() -> dict[tuple[str, str], list[Summary]]:
    return {}


def _without_slo(file: ScenarioFile) -> str:
    return file.model_copy(update={"slo": Limits()}).model_dump_json()
