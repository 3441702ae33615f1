"""Runs to look into: the scenario at the side, and the folders that this dashboard keeps."""

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from app.dashboard.simulations import SimulatedScenario
from app.figures import state_of_steps
from loadtest.report.server_metrics import load_server_metrics
from sim.explain.explain import Explainer
from sim.records.run import Run, load_run

_RUN_FILES = ("meta.json", "summary.json", "requests.parquet")
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class TimelineRun:
    """A run, who explains it, and how its server fared: the KV tokens of a replica where they are
    known, what a load test read at the server."""

    run: Run
    explainer: Explainer
    kv_tokens: int | None
    server: pd.DataFrame | None = None

    @property
    def start_s(self) -> float:
        """When the first request was due."""
        scheduled_s = self.run.requests["scheduled_s"]
        return float(scheduled_s.min()) if len(scheduled_s) else 0.0

    @property
    def end_s(self) -> float:
        """When all was done."""
        stamps = self.run.requests[["scheduled_s", "last_token_s"]].max().max()
        return float(stamps) if stamps > self.start_s else self.start_s + 1.0

    def state(self, start_s: float, end_s: float) -> pd.DataFrame:
        """Requests running and waiting, and KV memory in use, between two times."""
        state = self.server
        if state is None:
            state = state_of_steps(self.steps(start_s, end_s), self.kv_tokens)
        return state[state["at_s"].between(start_s, end_s)]

    def steps(self, start_s: float, end_s: float) -> pd.DataFrame:
        """The steps that share time with a window, of all replicas."""
        inside = [of.touching(start_s, end_s) for of in self.explainer.spans.steps.values()]
        return pd.concat(inside) if inside else pd.DataFrame()


def from_simulation(outcome: SimulatedScenario) -> TimelineRun:
    """The scenario's own simulation."""
    scenario = outcome.scenario
    run = replace(outcome.run, scenario={"policies": scenario.policies.as_dict()})
    splits = scenario.cluster.splits or scenario.more_profiles
    kv_tokens = None if splits else scenario.policies.kv_tokens
    return TimelineRun(run, Explainer(run, scenario.servers()), kv_tokens)


def from_folder(folder: Path) -> TimelineRun:
    """A run that was kept; raises ``RunError`` where it cannot be read."""
    run = load_run(folder)
    kv_tokens = (run.scenario.get("policies") or {}).get("kv_tokens")
    server = load_server_metrics(folder) if run.kind == "loadtest" else None
    return TimelineRun(run, Explainer(run), kv_tokens, server)


def kept_runs(root: Path) -> list[str]:
    """Run folders under ``root``, by their paths from there; the newest first."""
    return [path.relative_to(root).as_posix() for path in sorted(_inside(root), key=_age_s)]


def last_change_s(folder: Path) -> float:
    """When something in it was written, added or taken away last, at any depth."""
    return max(_written_s(path) for path in (folder, *folder.rglob("*")))


def _written_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted meanwhile
        return 0.0


def _inside(folder: Path, depth: int = 0) -> list[Path]:
    if any((folder / name).exists() for name in _RUN_FILES):
        return [folder]
    if depth == _DEEPEST or not folder.is_dir():
        return []
    return [
        found
        for path in folder.iterdir()
        if path.is_dir() and not path.is_symlink()
        for found in _inside(path, depth + 1)
    ]


def _age_s(folder: Path) -> tuple[float, str]:
    return -_written_s(folder), str(folder)
