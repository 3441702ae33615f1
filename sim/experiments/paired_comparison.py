"""Two policies on common random numbers: what differs, how surely, and for which requests.

Both run over the same seeds, so that seed by seed they have the same load and the same noise. What
they share cancels in the difference. Its interval is Student's t over the seeds, far narrower than
that of either figure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from servetwin.sim.records.metrics import FIGURES, common, figure
from servetwin.sim.records.run import Run, RunError
from servetwin.sim.step_times.step_time import FloatArray

METRICS = (
    *FIGURES,
    "output_throughput_tokens_per_s",
    "request_throughput_per_s",
    "tasks.per_hour",
)
CONFIDENCE = 0.95
MOST = 10


@dataclass(frozen=True, slots=True)
class MetricDifference:
    """One metric: means over the seeds, and their difference b - a.

    ``low`` and ``high`` bound the difference with 95 % confidence; None with fewer than two seeds.
    ``seeds`` counts the seeds in which both sides have the metric; if it is 0, all others are
    None.
    """

    metric: str
    a: float | None
    b: float | None
    difference: float | None
    low: float | None
    high: float | None
    seeds: int

    @property
    def sure(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The differences of metrics, and the requests that gained and lost most."""

    metrics: tuple[MetricDifference, ...]
    gained: pd.DataFrame
    lost: pd.DataFrame


def compare(runs_a: Sequence[Run], runs_b: Sequence[Run], most: int = MOST) -> RunComparison:
    """Compare runs, pair by pair of the same seed, by their E2E latencies and other metrics.

    ``gained`` and ``lost`` (as ``request_differences``) have at most ``most`` requests. Raises
    ``RunError`` if the runs are not in pairs.
    """
    metrics = compare_summaries([r.summary() for r in runs_a], [r.summary() for r in runs_b])
    differences = request_differences([r.requests for r in runs_a], [r.requests for r in runs_b])
    gained, lost = (of.reset_index(drop=True) for of in largest_differences(differences, most))
    return RunComparison(metrics, gained, lost)


def largest_differences(differences: pd.DataFrame, most: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the requests with the largest gains, and those with the largest losses."""
    gained = differences[differences["difference"] < 0].nsmallest(most, "difference")
    return gained, differences[differences["difference"] > 0].nlargest(most, "difference")


def compare_summaries(
    a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]
) -> tuple[MetricDifference, ...]:
    """Compare those of ``METRICS`` that all have; entry i of both sides is of the same seed."""
    _require_pairs(len(a), len(b))
    return tuple(
        _compare_metric(m, [figure(s, m) for s in a], [figure(s, m) for s in b])
        for m in common(METRICS, [*a, *b])
    )


def half_width(values: FloatArray, confidence: float) -> float:
    """Return the half width of the interval of a mean, by Student's t; of at least two values."""
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, (1 + confidence) / 2))
    return quantile * float(values.std(ddof=1)) / math.sqrt(len(values))


def request_differences(
    a: Sequence[pd.DataFrame], b: Sequence[pd.DataFrame], metric: str = "e2e_s"
) -> pd.DataFrame:
    """Return a row for each request that finished on both sides of at least one pair.

    Columns are ``request_id``, ``a``, ``b`` and ``difference`` (b - a): means over the ``seeds``
    pairs in which the request finished on both sides.
    """
    _require_pairs(len(a), len(b))
    pairs = pd.concat([_paired(x, y, metric) for x, y in zip(a, b, strict=True)])
    means = pairs.groupby("request_id", sort=False).agg(
        a=("a", "mean"), b=("b", "mean"), seeds=("a", "size")
    )
    means.insert(2, "difference", means["b"] - means["a"])
    return means.reset_index()


def _require_pairs(a: int, b: int) -> None:
    if a != b or not a:
        raise RunError(f"runs to compare come in pairs of one seed; there are {a} and {b}")


def _paired(a: pd.DataFrame, b: pd.DataFrame, metric: str) -> pd.DataFrame:
    a, b = (side.loc[side["status"] == "finished", ["request_id", metric]] for side in (a, b))
    return a.merge(b, on="request_id").set_axis(["request_id", "a", "b"], axis=1).dropna()


def _compare_metric(
    metric: str, a: Sequence[float | None], b: Sequence[float | None]
) -> MetricDifference:
    pairs = np.array([(x, y) for x, y in zip(a, b, strict=True) if None not in (x, y)], float)
    seeds = len(pairs)
    if not seeds:
        return MetricDifference(metric, None, None, None, None, None, 0)
    mean_a, mean_b = pairs.mean(axis=0).tolist()
    differences = pairs[:, 1] - pairs[:, 0]
    middle = float(differences.mean())
    if seeds == 1:
        return MetricDifference(metric, mean_a, mean_b, middle, None, None, 1)
    half = half_width(differences, CONFIDENCE)
    return MetricDifference(metric, mean_a, mean_b, middle, middle - half, middle + half, seeds)
