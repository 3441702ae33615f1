"""The run that a timeline shows: the scenario at the side, or a kept run folder."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from servetwin.app.dashboard.pictures.simulated_source import recorded_run
from servetwin.app.dashboard.simulations import SimulatedScenario
from servetwin.app.figures import state_of_steps
from servetwin.loadtest.report.server_metrics import load_server_metrics
from servetwin.sim.explain.explain import Explainer
from servetwin.sim.records.run import Run, load_run


@dataclass(frozen=True, slots=True)
class TimelineRun:
    """A run with its explanations, the KV memory of a replica in tokens where it is known, and the
    server metrics that a load test scraped."""

    run: Run
    explainer: Explainer
    kv_tokens: int | None
    server: pd.DataFrame | None = None

    @property
    def start_s(self) -> float:
        """When the first request was scheduled."""
        scheduled_s = self.run.requests["scheduled_s"]
        return float(scheduled_s.min()) if len(scheduled_s) else 0.0

    @property
    def end_s(self) -> float:
        """When the last request ended."""
        stamps = self.run.requests[["scheduled_s", "last_token_s"]].max().max()
        return float(stamps) if stamps > self.start_s else self.start_s + 1.0

    def state(self, start_s: float, end_s: float) -> pd.DataFrame:
        """Return requests running and waiting, and KV memory in use, between two times."""
        state = self.server
        if state is None:
            state = state_of_steps(self.steps(start_s, end_s), self.kv_tokens)
        return state[state["at_s"].between(start_s, end_s)]

    def steps(self, start_s: float, end_s: float) -> pd.DataFrame:
        """Return the steps of all replicas that overlap a window."""
        inside = [of.touching(start_s, end_s) for of in self.explainer.spans.steps.values()]
        return pd.concat(inside) if inside else pd.DataFrame()


def from_simulation(outcome: SimulatedScenario) -> TimelineRun:
    """Return the simulation of the scenario at the side."""
    scenario = outcome.scenario
    run = recorded_run(outcome)
    splits = scenario.cluster.splits or scenario.more_profiles
    kv_tokens = None if splits else scenario.policies.kv_tokens
    return TimelineRun(run, Explainer(run, scenario.servers()), kv_tokens)


def from_folder(folder: Path) -> TimelineRun:
    """Return a kept run; raises ``RunError`` where it cannot be read."""
    run = load_run(folder)
    kv_tokens = (run.scenario.get("policies") or {}).get("kv_tokens")
    server = load_server_metrics(folder) if run.kind == "loadtest" else None
    return TimelineRun(run, Explainer(run), kv_tokens, server)
