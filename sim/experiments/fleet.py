"""A fleet: replicas behind a router, or the users at work."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from servetwin.sim.experiments.capacity import admitting_all, all_at_once, completions_per_s
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario, replicate
from servetwin.sim.records.columns import Frame
from servetwin.sim.records.metrics import measured
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.pauses import PauseDistribution
from servetwin.workloads.generators.resampled import sent_by_users
from servetwin.workloads.graphs.task_graph import form_a_loop
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import limit

Simulate = Callable[[Trace, Scenario], Run]

_SAMPLE, _FEWEST = 20_000, 10
# Share of the users that may not have begun, or may have ended, while requests are judged.
_IDLE = 0.05


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many times the servers of ``scenario``, for the arrivals of ``trace`` as they are.

    ``known_load`` at a count of 1 spares the simulation of ``load``.
    """

    trace: Trace
    scenario: Scenario
    known_load: float | None = None
    more_holds: ClassVar[bool] = True
    """Whether a target that holds at a count holds at larger ones, else at smaller ones."""

    def at(self, count: int) -> tuple[Trace, Scenario]:
        """Return the trace, and ``count`` times the servers."""
        return self.trace, times(self.scenario, count)

    def judged_requests(self, run: Run, trace: Trace) -> Frame:
        """Return all requests but those of a warm-up."""
        return measured(run.requests)

    def load(self, simulate: Simulate) -> float | None:
        """Return the load at a count of 1: requests that arrive per request that is completed.

        That is the rate of the trace over the rate at which one of the servers is saturated; None
        where requests wait for answers, or all arrive at once. Raises ``TraceError`` for a trace
        without times.
        """
        if not self.trace.timed:
            raise TraceError(f"{self.trace.source}: no arrival times; give a rate, --rate R")
        follows = self.scenario.cluster.closed_loop is not False and form_a_loop(self.trace)
        if follows or not self.trace.rate_per_s or self.known_load is not None:
            return self.known_load
        run = simulate(all_at_once(self.trace), admitting_all(times(self.scenario, 1)))
        return self.trace.rate_per_s / completions_per_s(run, self.trace.source)


@dataclass(frozen=True, slots=True)
class Users:
    """How many users at a time, who send the conversations of ``trace`` to ``scenario``; or lanes,
    where it has any.

    ``think`` is drawn by ``seed`` (``workloads.generators.resampled``).
    """

    trace: Trace
    scenario: Scenario
    think: PauseDistribution | None = None
    seed: int = 0
    more_holds: ClassVar[bool] = False

    def at(self, count: int) -> tuple[Trace, Scenario]:
        """Return the requests of ``count`` users or lanes, and the servers."""
        if lanes := self.trace.lanes:
            return replace(self.trace, lanes=replace(lanes, lanes=count)), self.scenario
        cluster = replace(self.scenario.cluster, closed_loop=True)
        trace = sent_by_users(self.trace, count, think=self.think, seed=self.seed)
        return trace, replace(self.scenario, cluster=cluster)

    def judged_requests(self, run: Run, trace: Trace) -> Frame:
        """Return the requests that are sent while users are at work, and all without an answer.

        That is from when 95 % of the users have had their first answer, since all begin together,
        until 5 % have sent their last request. Of lanes it is the measured phase.
        """
        if trace.lanes:
            return measured(run.requests)
        rows, user = run.requests, {request.request_id: request.tenant for request in trace}
        users = rows.groupby(rows["request_id"].map(user), sort=False)
        start_s = users["last_token_s"].min().quantile(1 - _IDLE, "higher")
        end_s = users["scheduled_s"].max().quantile(_IDLE, "lower")
        return rows[rows["scheduled_s"].between(start_s, end_s) | (rows["status"] != "finished")]

    def load(self, simulate: Simulate) -> None:
        """Return None: clients wait for the server, so that the load cannot stay above 1."""


# A trace and a scenario whose replicas, users or lanes are counted.
ScaledScenario = Replicas | Users


def least_replica_hours(trace: Trace, scenario: Scenario) -> float | None:
    """Return the replica-hours that an ideal autoscaler needs, which starts and stops at once.

    That is the work of the trace at full batches: its requests over those that a saturated replica
    completes per hour, of the first 20,000 of them. None where fewer than ten finish there.
    """
    one = admitting_all(replace(scenario, cluster=ClusterConfig(closed_loop=False)))
    run = replicate(all_at_once(limit(trace, _SAMPLE)), one, np.random.SeedSequence(0))
    if (run.table("requests")["status"] == "finished").sum() < _FEWEST:
        return None
    return len(trace) / completions_per_s(run, trace.source) / 3600


def times(scenario: Scenario, count: int) -> Scenario:
    """Return ``count`` times the servers of a scenario, whose pools have their least numbers.

    That is a replica of each profile, or the prefill and decode servers as they are given.
    """
    cluster = scenario.cluster
    if not cluster.splits:
        return replace(scenario, cluster=replace(cluster, replicas=count))
    prefill, decode = count * cluster.prefill_replicas, count * cluster.decode_replicas
    split = replace(cluster, prefill_replicas=prefill, decode_replicas=decode)
    return replace(scenario, cluster=split)
