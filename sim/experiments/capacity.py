"""The requests per second that a server sustains on the request lengths of a trace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from policies.config import PolicyConfig
from sim.experiments.bisection import bisect_rate
from sim.experiments.parallel_map import map_on_processes
from sim.experiments.predict import Interval, run_once, runs_over_seeds
from sim.experiments.scenario import Scenario, replicate
from sim.records.metrics import LATENCIES, SLO, figure
from sim.records.run import Run
from sim.step_times.server_model import ServerModel
from workloads.errors import TraceError
from workloads.trace import Trace
from workloads.transform import at_rate

PRECISION = 0.01
REPLICATIONS = 20
_LADDER = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)
"""Shares of the saturation rate that the search climbs before it bisects."""
_NEARBY = (0.8, 0.95, 1.05, 1.2)
"""Multiples of the rate found with the fitted coefficients, where each replication begins."""


@dataclass(frozen=True, slots=True)
class SLOTarget:
    """A target: at least the share ``attainment`` of all requests meets ``slo``."""

    slo: SLO
    attainment: float = 0.99

    def shares(self, run: Run) -> dict[str, float]:
        """Return the share of requests that meet the whole SLO (``all``), and each limit by name.

        A request that did not finish meets no limit.
        """
        limits = {name: getattr(self.slo, name) for name in LATENCIES}
        alone = {n: SLO(**{n: limit}) for n, limit in limits.items() if limit is not None}
        parts = {"all": self.slo, **alone}
        return {name: float(slo.met(run.requests).mean()) for name, slo in parts.items()}


@dataclass(frozen=True, slots=True)
class TriedRate:
    """A rate that was simulated with the fitted coefficients, and the result."""

    rate_per_s: float
    shares: Mapping[str, float]
    summary: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest rate at which a target holds, beside the rate at which the server saturates.

    Rates are requests per second of all ``servers`` together, and medians over the replications if
    there are any. ``missed`` is the next rate, at which the target fails; None if it holds up to
    saturation. ``tried`` is in the order of the rates.
    """

    rate_per_s: Interval
    saturation_per_s: Interval
    missed: TriedRate | None
    servers: int
    tried: Sequence[TriedRate]
    replications: int

    @property
    def limit(self) -> str:
        """The limit that the fewest requests meet at ``missed``, or ``saturation``."""
        if self.missed is None:
            return "saturation"
        shares = {name: share for name, share in self.missed.shares.items() if name != "all"}
        return min(shares, key=lambda name: shares[name])

    @property
    def per_server_per_s(self) -> float:
        """The rate per server, in requests per second."""
        return self.rate_per_s.value / self.servers


def find_capacity(
    trace: Trace,
    scenario: Scenario,
    target: SLOTarget,
    *,
    seed: int = 0,
    replications: int = REPLICATIONS,
    precision: float = PRECISION,
    processes: int = 1,
    on_replication: Callable[[int], None] | None = None,
) -> Capacity:
    """Find the capacity of ``scenario`` by simulating ``trace`` at rates up to its saturation rate.

    Every replication draws its engine once (``sim.experiments.predict``) and uses it at every rate:
    each yields one threshold, and the spread of the thresholds is the interval. Raises
    ``TraceError`` for a trace without a rate, or with too few requests.
    """
    at_once = run_once(all_at_once(trace), _admitting_all(scenario), seed=seed)
    ceiling_per_s = completions_per_s(at_once, trace.source)
    rungs = [*(share * ceiling_per_s for share in _LADDER), ceiling_per_s]
    tried: dict[float, TriedRate] = {}

    def holds(rate_per_s: float) -> bool:
        run = run_once(at_rate(trace, rate_per_s), scenario, seed=seed)
        tried[rate_per_s] = TriedRate(rate_per_s, target.shares(run), run.summary(target.slo))
        return tried[rate_per_s].shares["all"] >= target.attainment

    found = bisect_rate(holds, rungs, precision)
    extrapolate = "extrapolated" in at_once.extra["provenance"]["shares"]
    job = _Replications(trace, scenario, target, seed, precision, found.holds_per_s, extrapolate)
    drawn = []
    if not scenario.is_repeatable():
        numbers = range(1, replications + 1)
        results = map_on_processes(_replicated, job, numbers, processes)
        for done, (_, rates) in enumerate(results, 1):
            drawn.append(rates)
            if on_replication:
                on_replication(done)
    capacities, ceilings = zip(*drawn or [(found.holds_per_s, ceiling_per_s)], strict=True)
    rate_per_s, saturation_per_s = Interval.over(capacities), Interval.over(ceilings)
    missed = None if found.fails_per_s is None else tried[found.fails_per_s]
    servers, in_order = len(scenario.servers()), [tried[rate] for rate in sorted(tried)]
    return Capacity(rate_per_s, saturation_per_s, missed, servers, in_order, len(drawn))


def saturation_rate_per_s(trace: Trace, config: PolicyConfig, profile: ServerModel) -> float:
    """Return the completed requests per second of a server that is never out of work.

    All requests arrive at once. The first and the last tenth of the completions, where batches fill
    up and drain, are left out. Raises ``TraceError`` if fewer than ten requests finish.
    """
    scenario = _admitting_all(Scenario(config, profile))
    return completions_per_s(run_once(all_at_once(trace), scenario), trace.source)


def saturation_interval(
    trace: Trace, config: PolicyConfig, profile: ServerModel, *, seed: int = 0
) -> Interval:
    """Return the rate of ``saturation_rate_per_s`` over draws of the profile, in requests/s.

    Raises ``TraceError`` if fewer than ten requests finish.
    """
    scenario, at_once = _admitting_all(Scenario(config, profile)), all_at_once(trace)
    draws = runs_over_seeds(at_once, scenario, seed=seed, replications=REPLICATIONS)
    return Interval.over([completions_per_s(run, trace.source) for run in draws])


@dataclass(frozen=True, slots=True)
class _Replications:
    """What all replications have in common; the search begins near ``guess_per_s``."""

    trace: Trace
    scenario: Scenario
    target: SLOTarget
    seed: int
    precision: float
    guess_per_s: float
    extrapolate: bool

    def run(self, number: int, trace: Trace, scenario: Scenario) -> Run:
        """Run replication ``number``, with a seed sequence of its own: spawning changes them."""
        drawn = np.random.SeedSequence(self.seed).spawn(number + 1)[number]
        return replicate(trace, scenario, drawn, draw=True, extrapolate=self.extrapolate)


def _replicated(job: _Replications, number: int) -> tuple[float, float]:
    """Return the capacity and the saturation rate of one replication."""
    at_once = job.run(number, all_at_once(job.trace), _admitting_all(job.scenario))
    ceiling_per_s = completions_per_s(at_once, job.trace.source)

    def holds(rate_per_s: float) -> bool:
        run = job.run(number, at_rate(job.trace, rate_per_s), job.scenario)
        return job.target.shares(run)["all"] >= job.target.attainment

    near = [factor * job.guess_per_s for factor in _NEARBY if job.guess_per_s]
    rungs = [*(rate for rate in near if rate < ceiling_per_s), ceiling_per_s]
    return bisect_rate(holds, rungs, job.precision).holds_per_s, ceiling_per_s


def all_at_once(trace: Trace) -> Trace:
    """Return the trace with all arrivals at 0 and without delays."""
    requests = [
        replace(r, arrival_s=0.0, delay_s=None if r.delay_s is None else 0.0) for r in trace
    ]
    return trace.replaced(requests, "all at once")


def _admitting_all(scenario: Scenario) -> Scenario:
    policies = replace(scenario.policies, queue_limit=None, shed_ttft_s=None)
    return replace(scenario, policies=policies)


def completions_per_s(run: Run, source: str) -> float:
    """Return the completed requests per second of a run in which all requests arrive at once.

    The first and the last tenth of the completions are left out: batches fill up and drain. Raises
    ``TraceError``, which names ``source``, if fewer than ten requests finish.
    """
    ends_s = run.requests["last_token_s"].dropna().sort_values().to_numpy()
    if len(ends_s) < 10:
        raise TraceError(f"{source}: {len(ends_s)} requests are too few to find a capacity")
    low, high = len(ends_s) // 10, len(ends_s) - 1 - len(ends_s) // 10
    span_s = float(ends_s[high] - ends_s[low])
    makespan_s = figure(run.summary(), "makespan_s")
    assert makespan_s is not None
    return (high - low) / span_s if span_s > 0 else len(ends_s) / makespan_s
