"""How many requests per second a server can sustain on a trace's mix of lengths."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from policies.config import PolicyConfig
from sim.experiments.bisection import bisect_rate
from sim.experiments.parallel_map import map_on_processes
from sim.experiments.predict import INTERVAL, REPLICATIONS, Interval, run_once
from sim.experiments.scenario import Scenario, replicate
from sim.records.metrics import LATENCIES, SLO, figure
from sim.records.run import Run
from sim.step_times.server_model import ServerModel
from workloads.errors import TraceError
from workloads.trace import Trace
from workloads.transform import at_rate

PRECISION = 0.01
_LADDER = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)
"""Shares of the saturation rate that the search climbs before it bisects."""
_NEARBY = (0.8, 0.95, 1.05, 1.2)
"""And, for a replication, multiples of what was found with the fitted coefficients."""


@dataclass(frozen=True, slots=True)
class SLOTarget:
    """At least the share ``attainment`` of all requests meets ``slo``."""

    slo: SLO
    attainment: float = 0.99

    def shares(self, run: Run) -> dict[str, float]:
        """Of all requests: within the whole SLO (``all``), and within each limit that there is.

        A request that did not finish is within none.
        """
        limits = {name: getattr(self.slo, name) for name in LATENCIES}
        alone = {n: SLO(**{n: limit}) for n, limit in limits.items() if limit is not None}
        parts = {"all": self.slo, **alone}
        return {name: float(slo.met(run.requests).mean()) for name, slo in parts.items()}


@dataclass(frozen=True, slots=True)
class TriedRate:
    """A rate that was tried, and what came of it with the fitted coefficients."""

    rate_per_s: float
    shares: Mapping[str, float]
    summary: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest rate at which a target holds, beside the rate at which the server saturates.

    Rates are requests per second of all ``servers`` together, medians over the replications where
    there are any. ``missed`` is the rate just above, where the target fails; None where it holds up
    to saturation. ``tried`` is in the order of the rates.
    """

    rate_per_s: Interval
    saturation_per_s: Interval
    missed: TriedRate | None
    servers: int
    tried: Sequence[TriedRate]
    replications: int

    @property
    def limit(self) -> str:
        """What stands in the way: the limit that fewest requests meet (``ttft_s`` ...), or
        ``saturation``."""
        if self.missed is None:
            return "saturation"
        shares = {name: share for name, share in self.missed.shares.items() if name != "all"}
        return min(shares, key=lambda name: shares[name])

    @property
    def per_server_per_s(self) -> float:
        """The rate of each server."""
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
    """Climb and bisect over the rate of ``trace``, its saturation rate being the ceiling.

    Every replication draws its engine once (``sim.experiments.predict``), the same at every rate:
    within it the answer is a plain threshold, and the spread of the thresholds is the interval.
    Raises ``TraceError`` for a trace that has no rate, or too few requests.
    """
    at_once = run_once(_at_once(trace), _admitting_all(scenario), seed=seed)
    ceiling_per_s = _completions_per_s(at_once, trace.source)
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
        for done, (_, rates) in enumerate(
            map_on_processes(_replicated, job, numbers, processes), 1
        ):
            drawn.append(rates)
            if on_replication:
                on_replication(done)
    capacities, ceilings = zip(*drawn or [(found.holds_per_s, ceiling_per_s)], strict=True)
    return Capacity(
        _interval(capacities),
        _interval(ceilings),
        None if found.fails_per_s is None else tried[found.fails_per_s],
        len(scenario.servers()),
        [tried[rate] for rate in sorted(tried)],
        len(drawn),
    )


def saturation_rate_per_s(trace: Trace, config: PolicyConfig, profile: ServerModel) -> float:
    """Completed requests per second when the server is never out of work.

    All requests come at once; the first and last tenth of the completions are left out, where
    batches fill up and drain. Raises ``TraceError`` when fewer than ten requests finish.
    """
    scenario = _admitting_all(Scenario(config, profile))
    return _completions_per_s(run_once(_at_once(trace), scenario), trace.source)


@dataclass(frozen=True, slots=True)
class _Replications:
    """What all replications have in common; ``guess_per_s`` is where they look first."""

    trace: Trace
    scenario: Scenario
    target: SLOTarget
    seed: int
    precision: float
    guess_per_s: float
    extrapolate: bool

    def run(self, number: int, trace: Trace, scenario: Scenario) -> Run:
        """Replication ``number``: a seed sequence is spent by its use, so each run has its own."""
        drawn = np.random.SeedSequence(self.seed).spawn(number + 1)[number]
        return replicate(trace, scenario, drawn, draw=True, extrapolate=self.extrapolate)


def _replicated(job: _Replications, number: int) -> tuple[float, float]:
    """Capacity and saturation rate of one replication."""
    at_once = job.run(number, _at_once(job.trace), _admitting_all(job.scenario))
    ceiling_per_s = _completions_per_s(at_once, job.trace.source)

    def holds(rate_per_s: float) -> bool:
        run = job.run(number, at_rate(job.trace, rate_per_s), job.scenario)
        return job.target.shares(run)["all"] >= job.target.attainment

    near = [factor * job.guess_per_s for factor in _NEARBY if job.guess_per_s]
    rungs = [*(rate for rate in near if rate < ceiling_per_s), ceiling_per_s]
    return bisect_rate(holds, rungs, job.precision).holds_per_s, ceiling_per_s


def _interval(rates: Sequence[float]) -> Interval:
    low, middle, high = np.quantile(rates, (INTERVAL[0], 0.5, INTERVAL[1]))
    return Interval(float(middle), float(low), float(high))


def _at_once(trace: Trace) -> Trace:
    """The limit of ever higher rates: no gap and no delay is left."""
    requests = [
        replace(r, arrival_s=0.0, delay_s=None if r.delay_s is None else 0.0) for r in trace
    ]
    return trace.replaced(requests, "all at once")


def _admitting_all(scenario: Scenario) -> Scenario:
    policies = replace(scenario.policies, queue_limit=None, shed_ttft_s=None)
    return replace(scenario, policies=policies)


def _completions_per_s(run: Run, source: str) -> float:
    ends_s = run.requests["last_token_s"].dropna().sort_values().to_numpy()
    if len(ends_s) < 10:
        raise TraceError(f"{source}: {len(ends_s)} requests are too few to find a capacity")
    low, high = len(ends_s) // 10, len(ends_s) - 1 - len(ends_s) // 10
    span_s = float(ends_s[high] - ends_s[low])
    makespan_s = figure(run.summary(), "makespan_s")
    assert makespan_s is not None
    return (high - low) / span_s if span_s > 0 else len(ends_s) / makespan_s
