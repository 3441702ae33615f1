"""A scenario simulated on a trace that is read as it is simulated, in one process."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from servetwin.sim.core.recorder import FlushingRecorder
from servetwin.sim.experiments.predict import sources
from servetwin.sim.experiments.scenario import Scenario, replicate
from servetwin.sim.long_runs.row_tables import RunTables
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.request import Request


def open_loop(scenario: Scenario) -> Scenario:
    """Return the scenario with all requests sent at their stamps."""
    return replace(scenario, cluster=replace(scenario.cluster, closed_loop=False))


def run_tables(scenario: Scenario, folder: Path | None, slo: SLO | None = None) -> RunTables:
    """Return the tables of a run of the scenario."""
    return RunTables(scenario.replicas(), sources(scenario), folder, slo)


def run_streamed(
    requests: Iterable[Request],
    scenario: Scenario,
    tables: RunTables,
    *,
    seed: int = 0,
    macro: bool = True,
    on_arrival: Callable[[int], None] | None = None,
) -> float:
    """Simulate as ``sim.experiments.predict.run_once`` does; the rows go to ``tables``.

    Return the seconds that took, reading and writing included.
    """
    started_s = time.perf_counter()
    replicate(
        requests,
        open_loop(scenario),
        np.random.SeedSequence(seed).spawn(1)[0],
        macro=macro,
        recorder=FlushingRecorder(tables.take, scenario.profile.api.model()),
        on_arrival=on_arrival,
    )
    return time.perf_counter() - started_s
