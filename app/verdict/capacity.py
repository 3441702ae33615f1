"""The capacity of an engine, measured as it is predicted: completions per second of a full server.

Near saturation latency is steep in utilisation: an engine with 1 % less capacity waits 10 % longer
under the same load (docs/simulation-practice.md). So from ``NEAR_SATURATION`` on the capacity is
compared first, and the latencies second, at equal utilisation: the forecast's, made at a share of
the predicted capacity, with those of a load at the same share of the measured capacity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from servetwin.app.verdict import claims
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.capacity import completions_per_s
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.records.run import Run, RunError
from servetwin.workloads.errors import LoadTestError

NEAR_SATURATION = 0.9
"""The share of the predicted capacity from which on the engine's capacity is measured first."""
SATURATION = "saturation"
"""Name of the folder that holds the load tests of the capacity."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """The load tests with all requests at once, and how their capacity compares."""

    measured: list[Run]
    comparison: claims.Comparison

    @property
    def capacity(self) -> claims.MetricComparison:
        """The predicted and the measured capacity, in requests per second."""
        return self.comparison.metrics[0]

    @property
    def measured_per_s(self) -> float:
        """The mean measured capacity in requests per second."""
        return fmean(_capacities_per_s(self.measured))

    def as_dict(self) -> dict[str, Any]:
        """The measured capacity and how it compares, for JSON."""
        return {"measured_per_s": self.measured_per_s, "comparison": self.comparison.as_dict()}


def is_near_saturation(utilisation: float) -> bool:
    """Return whether a load at this share of the capacity is compared at equal utilisation."""
    return utilisation >= NEAR_SATURATION


def latency_limits(limits: Mapping[str, float]) -> dict[str, float]:
    """Return the limits at equal utilisation: throughputs differ as the capacities do."""
    return {metric: limit for metric, limit in limits.items() if metric != claims.THROUGHPUT}


def compare_capacity(
    predicted: Interval, measured: Sequence[Run], doubts: Sequence[str] = ()
) -> claims.Comparison:
    """Compare the predicted capacity with load tests that send all requests at once.

    ``doubts`` join those that the runs themselves raise. Raises ``TraceError`` if fewer than ten
    requests of a run finished.
    """
    runs = claims.judgeable(measured, late_sends=False)
    row = claims.compare_metric(
        claims.CAPACITY, predicted, _capacities_per_s(runs), [], claims.CAPACITY_LIMIT
    )
    doubts = (*claims.doubts_about(runs, late_sends=False), *doubts)
    limited = claims.count_limited(runs, late_sends=False)
    return claims.Comparison((row,), len(runs), doubts, len(measured) - len(runs), limited)


def _capacities_per_s(measured: Sequence[Run]) -> list[float]:
    return [completions_per_s(run, "load test of the capacity") for run in measured]


def require_admitting_all(config: PolicyConfig) -> None:
    """Raise ``LoadTestError`` for a server that refuses a backlog: its capacity stays unknown."""
    if config.queue_limit is not None or config.shed_ttft_s is not None:
        raise LoadTestError(
            f"--utilisation: from {NEAR_SATURATION:g} on, the capacity is measured with all "
            "requests at once, and a server with queue_limit or shed_ttft_s refuses some; give less"
        )


def require_saturation(measured: Sequence[Run], folder: Path) -> None:
    """Raise ``RunError`` where loads near saturation were sent without a measured capacity."""
    if not measured:
        raise RunError(
            f"{folder}: load tests near saturation without those of the capacity "
            f"({folder / SATURATION}); verify again into a new folder"
        )
