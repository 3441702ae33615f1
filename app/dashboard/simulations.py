"""Simulations of scenarios, each run once and shared by all pages and all users.

A cached result is never changed. An uploaded trace belongs to a session; the digest of its file
keeps its results apart from another file of the same name. The SLO changes nothing that is
simulated, only what is counted.
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from weakref import WeakValueDictionary

import streamlit as st

from servetwin.app.dashboard.jobs.job import Job, progress_of
from servetwin.app.dashboard.jobs.priority_lock import PriorityLock, Rank
from servetwin.app.dashboard.jobs.shared_results import RESULTS, SharedResults
from servetwin.app.dashboard.jobs.simulated_items import Replication, Summary, simulate_replication
from servetwin.app.dashboard.scenario.allowed_choices import require_all_offered
from servetwin.app.dashboard.scenario.uploads import given, packed
from servetwin.app.dashboard.widgets import end_if_stale, or_stop
from servetwin.app.scenario.files.scenario_file import Limits, ScenarioError, ScenarioFile, Workload
from servetwin.sim.experiments.predict import is_outside, run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.run import Run
from servetwin.workloads.trace import Trace

REPLICATIONS = 20
_MOST_KEPT = 64
_MOST_TRACES = 16
# Of all kept runs together; a run of fewer counts as ``_FEW_REQUESTS``.
_MOST_REQUESTS = 640_000
_FEW_REQUESTS = _MOST_REQUESTS // _MOST_KEPT

# Of all sessions, at computing and drawing in this process.
TURNS = PriorityLock()
_simulated: SharedResults[tuple[str, str], tuple[Trace, Scenario, Run]] = SharedResults(
    _MOST_REQUESTS, lambda found: max(len(found[0]), _FEW_REQUESTS)
)
_under_way: WeakValueDictionary[tuple[str, str], Job[Replication, Summary]] = WeakValueDictionary()
_beginning = Lock()


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
    digest, trace = given(file.workload.source)
    text = file.model_copy(update={"slo": Limits()}).model_dump_json()
    simulated = _simulated.get((text, digest), lambda: _simulate(text, trace), end_if_stale)
    return SimulatedScenario(file, digest, *simulated, simulated[-1].summary(file.slo.slo()))


def simulate_or_stop(file: ScenarioFile) -> SimulatedScenario:
    """Return ``simulate(file)``; where the scenario cannot run, show why and end the page."""
    return or_stop(lambda: simulate(file))


def replications(outcome: SimulatedScenario) -> Generator[int, None, None]:
    """Yield how many replications there are so far, over drawn coefficients and noise, and over
    draws of a generated workload; then they are ``finished_replications``.

    They are simulated on the processes of all users, once for all sessions that wait for them, and
    stop when none does; there are none where all would be equal. Raises ``ServetwinError`` where a
    process fails.
    """
    if finished_replications(outcome) or not outcome.is_drawn:
        return
    yield from progress_of(_replicating(outcome))


def _replicating(outcome: SimulatedScenario) -> "Job[Replication, Summary]":
    """Return the job of the replications, which the first session that asks for it begins."""
    key = _key(outcome)
    with _beginning:
        job = _under_way.get(key)
        if job is None:
            file, outside = outcome.file, is_outside(outcome.run)
            trace = packed(file.workload.source)
            items = [Replication(file, n, outside, trace) for n in range(REPLICATIONS)]
            keys = _replication_keys(outcome)
            job = _under_way[key] = Job(simulate_replication, items, keys=keys)
        return job


def finished_replications(outcome: SimulatedScenario) -> list[Summary]:
    """Return all kept ``replications``; none where they are not all there yet."""
    summaries = RESULTS.of(dict(enumerate(_replication_keys(outcome))))
    return list(summaries.values()) if len(summaries) == REPLICATIONS else []


def _replication_keys(outcome: SimulatedScenario) -> list[tuple[str, int, tuple[str, str]]]:
    key = _key(outcome)
    return [("replication", number, key) for number in range(REPLICATIONS)]


def _simulate(text: str, upload: Trace | None) -> tuple[Trace, Scenario, Run]:
    file = ScenarioFile.model_validate_json(text)
    workload = file.workload
    with TURNS.turn(Rank.FIRST_ANSWER, end_if_stale) as turn:
        trace = _requests(workload, file.seed, upload)
        try:
            scenario = _built(file, trace)
            run = run_once(trace, scenario, seed=file.seed, on_arrival=lambda _: turn.give_way())
        except ArithmeticError as error:
            problem = f"a setting is too large or too small to simulate ({error})"
            raise ScenarioError(problem) from error
    return trace, scenario, run


def _built(file: ScenarioFile, trace: Trace) -> Scenario:
    """Return ``file.build(trace)``, with the servers of all scenarios that differ in their requests
    alone: they remember step times."""
    plain = file.model_copy(update={"workload": Workload(), "seed": 0})
    scenario = _settled(plain.model_dump_json())
    longest = scenario.policies.max_model_len
    return scenario if trace.longest_tokens <= longest else file.build(trace)


@lru_cache(maxsize=4)
def _settled(text: str) -> Scenario:
    return ScenarioFile.model_validate_json(text).settled()


def _requests(workload: Workload, seed: int, upload: Trace | None) -> Trace:
    if upload:
        return workload.trace(seed, {workload.source: upload})
    return _trace(workload.model_dump_json(), seed)


@st.cache_resource(max_entries=_MOST_TRACES, show_spinner=False)
def _trace(workload: str, seed: int) -> Trace:
    return Workload.model_validate_json(workload).trace(seed)


def _key(outcome: SimulatedScenario) -> tuple[str, str]:
    """Return what the replications depend on: the limits of the SLO, but not its percentile."""
    slo = outcome.file.slo.model_copy(update={"percentile": Limits().percentile})
    return outcome.file.model_copy(update={"slo": slo}).model_dump_json(), outcome.digest
