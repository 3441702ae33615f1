"""A prediction with its interval: the same trace, simulated over drawn coefficients and noise.

Each replication draws the step-time coefficients (their covariance, and the drift between
calibration rounds) and the noise of every step. Replication ``r`` of seed ``s`` draws the same
numbers whatever the policy: common random numbers, so policies are compared on equal terms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.config import PolicyConfig
from sim.metrics import figure
from sim.profile import Profile
from sim.run import Run
from sim.scenario import Scenario, replicate
from workloads.trace import Trace

REPLICATIONS = 20
INTERVAL = (0.05, 0.95)


@dataclass(frozen=True, slots=True)
class Interval:
    """A predicted figure: median, 5 % and 95 % quantiles over the replications.

    The median, because latency near saturation is a convex function of step time: a few slow draws
    would pull a mean far from what any single run shows.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a profile says a policy will do with a trace.

    ``run`` has the fitted coefficients, ``summaries`` those of the replications.
    """

    run: Run
    summaries: list[dict[str, Any]]

    def interval(self, metric: str) -> Interval | None:
        """A figure (``ttft_s.p90``) with its interval; None where it is undefined."""
        values = [v for s in self.summaries if (v := figure(s, metric)) is not None]
        if not values:
            return None
        low, middle, high = np.quantile(values, (INTERVAL[0], 0.5, INTERVAL[1]))
        return Interval(float(middle), float(low), float(high))


def predict_once(
    trace: Trace,
    config: PolicyConfig,
    profile: Profile,
    *,
    seed: int = 0,
    on_arrival: Callable[[int], None] | None = None,
) -> Run:
    """One simulation with the fitted coefficients, and noise: the quick answer."""
    return run_once(trace, Scenario(config, profile), seed=seed, on_arrival=on_arrival)


def run_once(
    trace: Trace,
    scenario: Scenario,
    *,
    seed: int = 0,
    macro: bool = True,
    keep_usage: bool = False,
    on_arrival: Callable[[int], None] | None = None,
) -> Run:
    """``predict_once`` of a whole scenario."""
    first = np.random.SeedSequence(seed).spawn(1)[0]
    return replicate(
        trace, scenario, first, macro=macro, keep_usage=keep_usage, on_arrival=on_arrival
    )


def predict(
    trace: Trace,
    config: PolicyConfig,
    profile: Profile,
    *,
    seed: int = 0,
    replications: int = REPLICATIONS,
) -> Prediction:
    """Simulate ``trace`` under ``config`` on the engine of ``profile``, with intervals."""
    return predict_scenario(trace, Scenario(config, profile), seed=seed, replications=replications)


def predict_scenario(
    trace: Trace, scenario: Scenario, *, seed: int = 0, replications: int = REPLICATIONS
) -> Prediction:
    """``predict`` of a whole scenario."""
    seeds = np.random.SeedSequence(seed).spawn(replications + 1)
    run = replicate(trace, scenario, seeds[0])
    draws = (replicate(trace, scenario, s, draw=True) for s in seeds[1:])
    return Prediction(run, [drawn.summary() for drawn in draws])


def runs_over_seeds(
    trace: Trace, scenario: Scenario, *, seed: int = 0, replications: int = REPLICATIONS
) -> list[Run]:
    """Whole runs over drawn coefficients and noise: seed by seed the same for every policy."""
    seeds = np.random.SeedSequence(seed).spawn(replications + 1)
    return [replicate(trace, scenario, s, draw=True) for s in seeds[1:]]
