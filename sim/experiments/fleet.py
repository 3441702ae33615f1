"""A fleet: replicas behind a router, or the users at work."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig, has_token_budget
from servetwin.sim.core.faults import Slow, parse_faults
from servetwin.sim.experiments.capacity import admitting_all, all_at_once, completions_per_s
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.columns import Frame
from servetwin.sim.records.metrics import measured
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import UNIT_S, AffineStepTime, StepTime
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.pauses import PauseDistribution
from servetwin.workloads.generators.resampled import sent_by_users
from servetwin.workloads.graphs.task_graph import form_a_loop
from servetwin.workloads.trace import Trace

Simulate = Callable[[Trace, Scenario], Run]

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
    """Return a lower bound of the replica-hours of any fleet that finishes all requests.

    No rule, router or number of replicas needs fewer: this is what an ideal autoscaler would need
    that knows the future, and starts and stops at once. Replicas are paid for while they run steps,
    so their hours are at least the steps' durations. These are at least the sum, over the tokens of
    each request, of the least seconds that one adds to a step (``_least_seconds``): once for every
    row that no prefix cache can save, or, if that is more, for the tokens of answers alone, of
    which a step has at most one for each of ``max_seqs`` sequences and their drafts. What a token
    reads of its context comes on top. (A token that is computed with its preempted prompt reads
    nothing as a decode; without a prefix cache it has as many more rows, which cost more.)

    Step times must grow with each of their features; their noise, with a mean of 1, is left out.
    None for lanes, whose requests depend on the run.
    """
    if trace.lanes:
        return None
    policies, cluster = scenario.policies, scenario.cluster
    prompts, outputs, samples = map(trace.column, ("prompt_tokens", "output_tokens", "samples"))
    most, layout = int(samples.sum()), build_scheduler(policies).memory.layout
    models = (profile.step_time(layout).model() for profile in scenario.profiles)
    each = [_least_seconds(model, policies, most) for model in models]
    row_s, token_s, context_s = (min(least) for least in zip(*each, strict=True))
    decodes = samples * (outputs - 1)
    passes = decodes.sum() / (1 + policies.draft_rows)
    rows_s = row_s * (passes + (_new_tokens(trace) if policies.prefix_cache else prompts.sum()))
    tokens_s = token_s * (passes + len(trace))
    recomputed = context_s / row_s if row_s and not policies.prefix_cache else 0.0
    seconds = max(rows_s, tokens_s + recomputed * (rows_s - tokens_s))
    seconds += context_s * (decodes * (prompts - 1 + outputs / 2)).sum()
    slowed = [one.factor for one in parse_faults(cluster.faults) if isinstance(one, Slow)]
    return min([1.0, *slowed]) * float(seconds) / 3600


def _new_tokens(trace: Trace) -> int:
    """Return how many tokens of prompts no prefix cache has, whatever the order of requests.

    The full blocks of each id once, without those of answers; and at least one token of a prompt.
    """
    known = {block for request in trace for block in request.answer_block_ids}
    tokens = 0
    for request in trace:
        size = request.block_tokens or 1
        full = request.prefix_block_ids[: request.prompt_tokens // size]
        new = set(full) - known
        known |= new
        tokens += request.prompt_tokens - size * (len(full) - len(new))
    return max(tokens, len(trace))


def _least_seconds(
    model: StepTime, policies: PolicyConfig, most: int
) -> tuple[float, float, float]:
    """Return the least seconds of a row, of a token of an answer, and of a token of its context.

    They are shares of the best step with at most ``most`` sequences: of the shortest of a range of
    sizes, divided by the largest of them. A prompt's attention is taken
    off: it is half of what as many earlier positions add. Rows, and what is read, count only where
    step times are affine in the context, and no draft is verified.
    """

    def lasts_s(decodes: int, *chunks: tuple[int, int]) -> float:
        contexts = (1,) * decodes
        shape = BatchShape(decodes, decodes, decodes, chunks, 0, 0, contexts, min(1, decodes))
        return float(model.seconds(shape)[0])

    seqs, longest = min(policies.max_seqs, most), policies.max_model_len
    token_s = min(min(lasts_s(a), lasts_s(0, *[(0, 1)] * a)) / b for a, b in _ranges(seqs))
    if not isinstance(model, AffineStepTime) or policies.draft_rows:
        return 0.0, token_s, 0.0
    rows = policies.token_budget if has_token_budget(policies.batching) else seqs * longest
    row_s = min((1.5 * lasts_s(0, (0, a)) - lasts_s(0, (b, b)) / 2) / b for a, b in _ranges(rows))
    row_s = max(0.0, min(row_s, token_s))
    again_s = (lasts_s(0, (longest, 1)) - lasts_s(0, (0, 1))) / longest
    reads_s = min(model.decodes[n][1] * UNIT_S for n in range(1, seqs + 1))
    return row_s, token_s, min(reads_s, again_s if policies.prefix_cache else row_s)


def _ranges(most: int) -> list[tuple[int, int]]:
    """Return the numbers from 1 to ``most`` as ranges of 1 %, one by one where these are few."""
    ends = np.unique(np.geomspace(1, most + 1, 1500).astype(int)).tolist()
    return [(first, after - 1) for first, after in pairwise(ends)]


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
