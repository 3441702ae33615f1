"""The run that the page Why shows: which of its requests, when, and what ran meanwhile."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.app.dashboard.scenario_words import recorded_run
from servetwin.app.dashboard.simulations import SimulatedScenario
from servetwin.app.dashboard.trust.error_by_load import in_flight
from servetwin.app.figures.canvas import evenly
from servetwin.app.figures.over_time import state_of_steps
from servetwin.app.figures.timeline import TimelineData
from servetwin.loadtest.report.server_metrics import load_server_metrics
from servetwin.sim.explain.explain import Explainer
from servetwin.sim.records.run import Run, load_run


@dataclass(frozen=True, slots=True)
class ShownRun:
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


def from_simulation(outcome: SimulatedScenario) -> ShownRun:
    """Return the simulation of the scenario at the side."""
    scenario = outcome.scenario
    run = recorded_run(outcome)
    splits = scenario.cluster.splits or scenario.more_profiles
    kv_tokens = None if splits else scenario.policies.kv_tokens
    return ShownRun(run, Explainer(run, scenario.replicas()), kv_tokens)


def from_folder(folder: Path) -> ShownRun:
    """Return a kept run; raises ``RunError`` where it cannot be read."""
    run = load_run(folder)
    kv_tokens = (run.scenario.get("policies") or {}).get("kv_tokens")
    server = load_server_metrics(folder) if run.kind == "loadtest" else None
    return ShownRun(run, Explainer(run), kv_tokens, server)


MOST_LINES = 120
# Requests that arrive within the window that a page begins with.
_ARRIVALS = 60

Window = tuple[float, float]


@dataclass(frozen=True, slots=True)
class VisibleRequests:
    """The rows of requests to draw, from the top, and a ``description`` of them."""

    rows: npt.NDArray[np.int64]
    window_s: Window
    description: str


def busiest_window(watched: ShownRun) -> Window:
    """Return a window around the moment with most requests, long enough for 60 arrivals."""
    requests = watched.run.requests
    whole_s = watched.end_s - watched.start_s
    length_s = whole_s * min(1.0, _ARRIVALS / max(len(requests), 1))
    start_s = _busiest_s(requests) - length_s / 2
    start_s = min(max(start_s, watched.start_s), watched.end_s - length_s)
    return start_s, start_s + length_s


def in_window(watched: ShownRun, window_s: Window, chosen: int | None = None) -> VisibleRequests:
    """Return requests present between two times, by arrival, evenly sampled, and ``chosen``."""
    requests = watched.run.requests
    start_s, end_s = window_s
    left_s = requests["last_token_s"].fillna(requests["scheduled_s"])
    there = requests[(requests["scheduled_s"] <= end_s) & (left_s >= start_s)]
    arrivals = there["scheduled_s"].sort_values(kind="stable")
    rows = evenly(arrivals.to_frame(), MOST_LINES).index.to_numpy(np.int64)
    if chosen is not None and chosen in arrivals.index and chosen not in rows:
        rows = arrivals.index[arrivals.index.isin([*rows, chosen])].to_numpy(np.int64)
    sampled = f"; {len(rows)} of them drawn, evenly sampled" if len(rows) < len(arrivals) else ""
    return VisibleRequests(rows, window_s, f"{len(arrivals)} requests in this window{sampled}")


def timeline_data(watched: ShownRun, choice: VisibleRequests) -> TimelineData:
    """Return the data of the figure."""
    start_s, end_s = choice.window_s
    requests = watched.run.requests.iloc[choice.rows]
    spans = [
        (line, *span)
        for line, row in enumerate(choice.rows.tolist())
        for span in watched.explainer.spans.of(row)
    ]
    frame = pd.DataFrame(spans, columns=["line", "part", "start_s", "end_s"])
    steps, state = watched.steps(start_s, end_s), watched.state(start_s, end_s)
    return TimelineData(start_s, end_s, requests, frame, steps, state)


def window_around(watched: ShownRun, row: int) -> Window:
    """Return all of a request's time, and some before and after."""
    request = watched.run.requests.iloc[row]
    start_s = float(request["scheduled_s"])
    end_s = float(request["last_token_s"]) if request["status"] == "finished" else start_s
    margin_s = max(0.25 * (end_s - start_s), 0.5)
    return max(start_s - margin_s, watched.start_s), min(end_s + margin_s, watched.end_s)


def _busiest_s(requests: pd.DataFrame) -> float:
    done = requests[requests["status"] == "finished"].sort_values("scheduled_s")
    return float(done["scheduled_s"].iloc[in_flight(done).argmax()]) if len(done) else 0.0
