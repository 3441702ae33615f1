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
from policies.registry import build_scheduler
from sim.metrics import figure
from sim.profile import Profile
from sim.run import Run
from sim.simulate import simulate
from sim.step_time import StepNoise
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
    first = np.random.SeedSequence(seed).spawn(1)[0]
    return _replicate(trace, config, profile, first, on_arrival=on_arrival)


def predict(
    trace: Trace,
    config: PolicyConfig,
    profile: Profile,
    *,
    seed: int = 0,
    replications: int = REPLICATIONS,
) -> Prediction:
    """Simulate ``trace`` under ``config`` on the engine of ``profile``, with intervals."""
    seeds = np.random.SeedSequence(seed).spawn(replications + 1)
    run = _replicate(trace, config, profile, seeds[0])
    draws = (_replicate(trace, config, profile, s, draw=True) for s in seeds[1:])
    return Prediction(run, [drawn.summary() for drawn in draws])


def _replicate(
    trace: Trace,
    config: PolicyConfig,
    profile: Profile,
    seed: np.random.SeedSequence,
    *,
    draw: bool = False,
    on_arrival: Callable[[int], None] | None = None,
) -> Run:
    coefficient_rng, noise_rng = (np.random.default_rng(s) for s in seed.spawn(2))
    scheduler = build_scheduler(config)
    fit = profile.step_time(scheduler.memory.layout)
    model = fit.drawn(coefficient_rng) if draw else fit.model()
    noise = StepNoise(fit.noise_factors(), noise_rng)
    return simulate(
        trace, scheduler, model, api=profile.api.model(), noise=noise, on_arrival=on_arrival
    )
