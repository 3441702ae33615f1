"""The requests per second that a server sustains on the request lengths of a trace.

The interval has two causes: other traffic of the same kind (``Resampling``), and the uncertainty of
the step times (``sim.experiments.predict``). Each replication draws both, and has a capacity of its
own. Their spread is taken around the capacity of the trace itself, in the logarithm of the rate:
where most of them lie below, so may the truth. Few replications measure the spread roughly, so the
interval is as wide as the largest spread demands that they do not contradict at 90 %: it contains
95 % of all capacities with a certainty of 90 % (a tolerance interval: Howe, "Two-sided tolerance
limits for normal populations", 1969).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from math import ceil, exp, inf, log, sqrt
from statistics import NormalDist, fmean, linear_regression
from typing import Any

import numpy as np

from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.parallel_map import Result, map_on_processes
from servetwin.sim.experiments.predict import (
    Interval,
    is_outside,
    replication_seed,
    run_once,
    runs_over_seeds,
    workload_seed,
)
from servetwin.sim.experiments.scenario import Scenario, replicate
from servetwin.sim.experiments.search import bisect_rate, crossing_rate
from servetwin.sim.explain.bottleneck import Limiting, find_bottleneck, limiting_resource
from servetwin.sim.records.metrics import LIMITED, SLO, figure, margins
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.protocol import FloatArray
from servetwin.sim.step_times.server_model import ServerModel
from servetwin.workloads.errors import PolicyError, TraceError
from servetwin.workloads.generators.resampled import Resampling
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate

PRECISION = 0.01
REPLICATIONS = 20
# Share of the capacities that the interval contains.
CONFIDENCE = 0.95
# Chance that the interval really contains this share.
CERTAINTY = 0.90
# Shares of the saturation rate that the search climbs before it bisects.
_LADDER = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)
# Rates within this logarithm of the capacity show how steeply latencies grow there.
_NEAR = log(1.6)
_LEAST_SLOPE = 0.2


@dataclass(frozen=True, slots=True)
class SLOTarget:
    """A target: at least the share ``attainment`` of all requests meets ``slo``."""

    slo: SLO
    attainment: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.attainment <= 1:
            raise PolicyError(f"--attainment: {self.attainment:g} is no share; 0.99 is 99 of 100")

    def shares(self, run: Run) -> dict[str, float]:
        """Return the share of requests that meet the whole SLO (``all``), and each limit by name.

        A request that did not finish meets no limit.
        """
        limits = {name: getattr(self.slo, name) for name in LIMITED}
        alone = {n: SLO(**{n: limit}) for n, limit in limits.items() if limit is not None}
        parts = {"all": self.slo, **alone}
        return {name: float(slo.met(run.table("requests")).mean()) for name, slo in parts.items()}

    def excess(self, run: Run) -> float:
        """Return the logarithm of the factor on all limits with which the target is just met.

        It is positive where the target is missed.
        """
        return self.excess_of(margins(run.table("requests"), self.slo))

    def excess_of(self, margins: FloatArray) -> float:
        """Return the excess of requests with these largest latencies over limits."""
        nearest = self.reached_by(margins)
        return log(nearest) if nearest > 0 else -inf

    def reached_by(self, values: FloatArray) -> float:
        """Return the least of the values that the share ``attainment`` of them does not pass."""
        needed = ceil(self.attainment * len(values) - 1e-9)
        return float(np.partition(values, needed - 1)[needed - 1])


@dataclass(frozen=True, slots=True)
class TriedRate:
    """A rate that was simulated with the fitted coefficients, and the result."""

    rate_per_s: float
    shares: Mapping[str, float]
    summary: Mapping[str, Any]
    excess: float
    limiting: Limiting


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest rate at which a target holds, beside the rate at which the server saturates.

    Rates are requests per second of all servers together, with their intervals if there are at
    least two ``replications``. ``missed`` is the next rate, at which the target fails; None if it
    holds up to saturation. ``tried`` is in the order of the rates. ``limiting`` is what the servers
    lack at ``missed``, or at saturation.
    """

    rate_per_s: Interval
    saturation_per_s: Interval
    missed: TriedRate | None
    tried: Sequence[TriedRate]
    replications: int
    limiting: Limiting

    @property
    def limit(self) -> str:
        """The limit that the fewest requests meet at ``missed``, or ``saturation``."""
        if self.missed is None:
            return "saturation"
        shares = {name: share for name, share in self.missed.shares.items() if name != "all"}
        return min(shares, key=lambda name: shares[name])


@dataclass(frozen=True, slots=True)
class Replications:
    """How many replications there are, and on how many processes.

    ``on_replication`` receives how many are done.
    """

    count: int = REPLICATIONS
    processes: int = 1
    on_replication: Callable[[int], None] = lambda done: None

    def map(self, function: Callable[[int], Result]) -> list[Result]:
        """Return ``function(number)`` of every replication, from number 1 on."""
        results: dict[int, Result] = {}
        for place, result in map_on_processes(
            function, range(1, self.count + 1), self.processes, _replication
        ):
            results[place] = result
            self.on_replication(len(results))
        return [results[place] for place in sorted(results)]


def _replication(place: int) -> str:
    return f"replication {place + 1}"


def find_capacity(
    trace: Trace,
    scenario: Scenario,
    target: SLOTarget,
    *,
    seed: int = 0,
    precision: float = PRECISION,
    replications: Replications = Replications(),
) -> Capacity:
    """Find the capacity of ``scenario`` by simulating ``trace`` at rates up to its saturation rate.

    Every replication draws traffic like that of ``trace`` and an engine, and uses both at every
    rate: each yields one threshold, and the spread of the thresholds makes the interval. Raises
    ``TraceError`` for a trace without a rate, or with too few requests.
    """
    at_once = run_once(all_at_once(trace), admitting_all(scenario), seed=seed)
    ceiling_per_s = completions_per_s(at_once, trace.source)
    tried: dict[float, TriedRate] = {}

    def holds(rate_per_s: float) -> bool:
        tried[rate_per_s] = one = _simulate_rate(trace, scenario, target, seed, rate_per_s)
        return one.shares["all"] >= target.attainment

    rungs = [*(share * ceiling_per_s for share in _LADDER), ceiling_per_s]
    holds_per_s, fails_per_s = bisect_rate(holds, rungs, precision)
    by_rate = [tried[rate] for rate in sorted(tried)]
    pairs: list[tuple[float, float]] = []
    if holds_per_s:
        draws = Draws(Resampling(trace), seed, is_outside(at_once))
        slope = slope_near({one.rate_per_s: one.excess for one in by_rate}, holds_per_s)
        around = (scenario, target, holds_per_s, slope, ceiling_per_s)
        pairs = replications.map(partial(_draw_capacity, draws, *around))
    saturation_per_s = containing(ceiling_per_s, [ceiling for _, ceiling in pairs])
    rate_per_s = containing(holds_per_s, [capacity for capacity, _ in pairs])
    rate_per_s = replace(rate_per_s, high=min(rate_per_s.high, saturation_per_s.high))
    missed = None if fails_per_s is None else tried[fails_per_s]
    limiting = (missed or by_rate[-1]).limiting
    return Capacity(rate_per_s, saturation_per_s, missed, by_rate, len(pairs), limiting)


def containing(value: float, draws: Sequence[float]) -> Interval:
    """Return the interval around ``value`` that has the share ``CONFIDENCE`` of such draws.

    With fewer than two draws it is the value alone.
    """
    from scipy.special import chdtri

    count = len(draws)
    if count < 2 or value == 0:
        return Interval(value, value, value)
    spread = sqrt(fmean(log(draw / value) ** 2 for draw in draws))
    at_most = spread * sqrt(count / chdtri(count, CERTAINTY))
    factor = exp(NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * at_most)
    return Interval(value, value / factor, value * factor)


def _simulate_rate(
    trace: Trace, scenario: Scenario, target: SLOTarget, seed: int, rate_per_s: float
) -> TriedRate:
    """Simulate the trace at a rate, with the fitted coefficients."""
    run, policies = run_once(at_rate(trace, rate_per_s), scenario, seed=seed), scenario.policies
    pressed = find_bottleneck(run, policies.as_dict(), policies.kv_tokens)
    limiting = limiting_resource(run, pressed, policies.as_dict(), target.slo)
    shares, summary = target.shares(run), run.summary(target.slo)
    return TriedRate(rate_per_s, shares, summary, target.excess(run), limiting)


def slope_near(excess: Mapping[float, float], rate_per_s: float) -> float:
    """Return how much the excess, by rate, grows with the logarithm of the rate near a rate."""
    near = [
        (log(rate / rate_per_s), value)
        for rate, value in excess.items()
        if abs(log(rate / rate_per_s)) < _NEAR and abs(value) < inf
    ]
    if len(near) < 2:
        return 1.0
    return max(linear_regression(*zip(*near, strict=True)).slope, _LEAST_SLOPE)


def saturation_rate_per_s(trace: Trace, config: PolicyConfig, profile: ServerModel) -> float:
    """Return the completed requests per second of a server that is never out of work.

    All requests arrive at once. The first and the last tenth of the completions, where batches fill
    up and drain, are left out. Raises ``TraceError`` if fewer than ten requests finish.
    """
    scenario = admitting_all(Scenario(config, profile))
    return completions_per_s(run_once(all_at_once(trace), scenario), trace.source)


def saturation_interval(
    trace: Trace, config: PolicyConfig, profile: ServerModel, *, seed: int = 0
) -> Interval:
    """Return the rate of ``saturation_rate_per_s`` over draws of the profile, in requests/s.

    Raises ``TraceError`` if fewer than ten requests finish.
    """
    scenario, at_once = admitting_all(Scenario(config, profile)), all_at_once(trace)
    draws = runs_over_seeds(at_once, scenario, seed=seed, replications=REPLICATIONS)
    return Interval.over([completions_per_s(run, trace.source) for run in draws])


@dataclass(frozen=True, slots=True)
class Draws:
    """Other traffic of a kind and another engine for each replication, from 1 on, of a seed."""

    traffic: Resampling
    seed: int
    extrapolate: bool

    def workload_seed(self, number: int) -> int:
        """Return the seed of the traffic of a replication."""
        return workload_seed(replication_seed(self.seed, number))

    def trace(self, number: int) -> Trace:
        """Return the traffic of a replication."""
        return self.traffic.draw(np.random.default_rng(self.workload_seed(number)))

    def run(self, number: int, trace: Trace, scenario: Scenario) -> Run:
        """Run a scenario on the engine of a replication."""
        child = replication_seed(self.seed, number)
        return replicate(trace, scenario, child, draw=True, extrapolate=self.extrapolate)


def _draw_capacity(
    draws: Draws,
    scenario: Scenario,
    target: SLOTarget,
    guess_per_s: float,
    slope: float,
    ceiling_per_s: float,
    number: int,
) -> tuple[float, float]:
    """Return the capacity and the saturation rate of one replication.

    ``guess_per_s``, ``slope`` and ``ceiling_per_s`` are the results on the fitted coefficients.
    Where nothing of the engine is drawn, its saturation rate is known.
    """
    seed, trace = draws.workload_seed(number), draws.trace(number)
    if not scenario.is_repeatable():
        at_once = draws.run(number, all_at_once(trace), admitting_all(scenario))
        ceiling_per_s = completions_per_s(at_once, trace.source)

    def excess(rate_per_s: float) -> float:
        return target.excess(draws.run(number, at_rate(trace, rate_per_s, seed), scenario))

    return crossing_rate(excess, guess_per_s, slope, ceiling_per_s), ceiling_per_s


def all_at_once(trace: Trace) -> Trace:
    """Return the trace with all arrivals at 0 and without delays."""
    delays_s = [None if r.delay_s is None else 0.0 for r in trace]
    return trace.changed("all at once", arrival_s=repeat(0.0), delay_s=delays_s)


def admitting_all(scenario: Scenario) -> Scenario:
    """Return the scenario with servers that refuse nothing."""
    policies = replace(scenario.policies, queue_limit=None, shed_ttft_s=None)
    return replace(scenario, policies=policies)


def completions_per_s(run: Run, source: str) -> float:
    """Return the completed requests per second of a run in which all requests arrive at once.

    The first and the last tenth of the completions are left out: batches fill up and drain. Raises
    ``TraceError``, which names ``source``, if fewer than ten requests finish.
    """
    ends_s = np.sort(run.table("requests")["last_token_s"])
    ends_s = ends_s[np.isfinite(ends_s)]
    if len(ends_s) < 10:
        raise TraceError(f"{source}: {len(ends_s)} requests are too few to find a capacity")
    low, high = len(ends_s) // 10, len(ends_s) - 1 - len(ends_s) // 10
    span_s = float(ends_s[high] - ends_s[low])
    makespan_s = figure(run.summary(), "makespan_s")
    assert makespan_s is not None
    return (high - low) / span_s if span_s > 0 else len(ends_s) / makespan_s
