"""The power of a load test: the smallest change of step time that it would have refuted."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from servetwin.app.verdict.claims import Comparison, MetricComparison, is_outside, with_forecast
from servetwin.app.verdict.forecast import LevelForecast
from servetwin.sim.experiments.predict import predict
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.transform import at_rate

CHANGES = (0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.10, 0.12, 0.16, 0.25, 0.50)
"""The relative changes of all step times that are tried."""

REPLICATIONS = 10


@dataclass(frozen=True, slots=True)
class Refutable:
    """The smallest changes of ``CHANGES`` that are refuted: all steps slower, or faster.

    None where even the largest change is not refuted.
    """

    slower: float | None
    faster: float | None


def refutable_change(
    level: LevelForecast,
    profile: Profile,
    comparison: Comparison,
    limits: Mapping[str, float],
    *,
    equal_utilisation: bool = False,
    seed: int = 0,
    replications: int = REPLICATIONS,
) -> Refutable:
    """Predict ``level`` with scaled step times, and find the smallest scale that is refuted.

    The measured runs are taken as those of an engine that the profile describes exactly: only the
    widths of their confidence intervals and of the forecast's count, not the error that was found.
    Both predictions have the same draws (common random numbers), so few replications are enough.
    With ``equal_utilisation`` the load follows the capacity, which is inverse to the step times.
    """
    rows = {row.metric: row for row in comparison.metrics if row.metric in limits}
    if comparison.doubts or not rows:
        return Refutable(None, None)

    def figures(scale: float) -> Mapping[str, float]:
        scaled = profile.scaled(scale)
        trace = level.trace
        if equal_utilisation:
            trace = at_rate(trace, trace.rate_per_s / scale)
        forecast = predict(
            trace, scaled.policy_config(), scaled, seed=seed, replications=replications
        )
        intervals = {metric: forecast.interval(metric) for metric in rows}
        return {metric: one.value for metric, one in intervals.items() if one is not None}

    exact = figures(1.0)

    def is_refuted(scale: float) -> bool:
        changed = figures(scale)
        return any(
            _would_be_refuted(row, changed[metric] / exact[metric], limits[metric])
            for metric, row in rows.items()
            if metric in exact and metric in changed
        )

    return Refutable(
        _smallest(lambda change: is_refuted(1 + change)),
        _smallest(lambda change: is_refuted(1 / (1 + change))),
    )


def _would_be_refuted(row: MetricComparison, ratio: float, limit: float) -> bool:
    """Return whether an error of ``ratio`` - 1, as uncertain as that of ``row``, is refuted."""
    if row.predicted is None or row.error_low is None or row.error_high is None:
        return False
    half = math.sqrt((1 + row.error_high) / (1 + row.error_low))
    return is_outside(*with_forecast(row.predicted, ratio / half - 1, ratio * half - 1), limit)


def _smallest(is_refuted: Callable[[float], bool]) -> float | None:
    """Return the smallest of ``CHANGES`` that is refuted, by bisection."""
    low, high = 0, len(CHANGES)
    while low < high:
        middle = (low + high) // 2
        if is_refuted(CHANGES[middle]):
            high = middle
        else:
            low = middle + 1
    return CHANGES[low] if low < len(CHANGES) else None
