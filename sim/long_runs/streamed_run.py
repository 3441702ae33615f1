"""A scenario simulated on a trace that is read as it is simulated, in one process."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from servetwin.sim.core.pools import Share
from servetwin.sim.core.recorder import FlushingRecorder, TakeRows
from servetwin.sim.experiments.predict import sources
from servetwin.sim.experiments.scenario import Scenario, replicate
from servetwin.sim.long_runs.row_tables import RunTables, TableSink
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.request import Request


def open_loop(scenario: Scenario) -> Scenario:
    """Return the scenario with all requests sent at their stamps."""
    return replace(scenario, cluster=replace(scenario.cluster, closed_loop=False))


def simulate_rows(
    requests: Iterable[Request],
    scenario: Scenario,
    recorder: FlushingRecorder,
    *,
    seed: int,
    macro: bool = True,
    replicas: frozenset[int] | None = None,
    on_arrival: Callable[[int], None] | None = None,
) -> float:
    """Simulate as ``sim.experiments.predict.run_once`` does; the rows go to ``recorder``.

    Of a cluster only the ``replicas`` are simulated (None: all). Return when a
    server alone had its last arrival or timer.
    """
    replicate(
        requests,
        open_loop(scenario),
        np.random.SeedSequence(seed).spawn(1)[0],
        macro=macro,
        recorder=recorder,
        share=None if replicas is None else Share(replicas, recorder.elsewhere),
        on_arrival=on_arrival,
    )
    return recorder.last_event_s


def row_recorder(scenario: Scenario, take: TakeRows, first_row: int = 0) -> FlushingRecorder:
    """Return a recorder that hands rows to ``take``; the first request has ``first_row``."""
    return FlushingRecorder(take, scenario.profile.api.model(), first_row)


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
    """Simulate in this process; return the seconds that took, reading and writing included."""
    started_s = time.perf_counter()
    sink = TableSink(tables.take)
    recorder = row_recorder(scenario, sink.add)
    simulate_rows(requests, scenario, recorder, seed=seed, macro=macro, on_arrival=on_arrival)
    return time.perf_counter() - started_s
