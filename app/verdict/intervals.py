"""The confidence interval of a prediction's relative error, from repeated measurements.

The trace is the same in prediction and measurement, so its own chance is in neither. What is left
has two sources, told apart here:

within a run
    The steps of the engine differ. Neighbouring requests share a queue, so blocks of consecutive
    requests are drawn anew: the circular block bootstrap (Politis and Romano, "A circular
    block-resampling procedure for stationary data", 1992), of predicted and measured latencies
    together, so that long prompts count on both sides.
between runs
    The machine changes from minute to minute: the variance of the figures of the runs, which
    includes the chance within them.

The larger of the two counts, in Student's distribution with its own degrees of freedom, plus the
Monte-Carlo error of the prediction (the degrees of a sum: Satterthwaite, "An approximate
distribution of estimates of variance components", 1946). Variances are of logarithms, that is
relative, so an interval of the error never reaches -100 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np
import numpy.typing as npt
import pandas as pd

# Of an interval of the error: each end is passed with a chance of 5 %.
CONFIDENCE = 0.90

# With fewer measured requests nothing can be said about the chance within a run.
MIN_REQUESTS = 30

_RESAMPLES = 400
# Degrees of freedom from which Student's distribution is the normal one.
_MANY = 1e6
_THROUGHPUT = "output_throughput_tokens_per_s"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RelativeVariance:
    """A variance of the logarithm of a figure, and its degrees of freedom."""

    value: float
    freedom: float


def variance_within(
    metric: str, predicted: pd.DataFrame, measured: pd.DataFrame
) -> RelativeVariance | None:
    """Return the variance of predicted / measured by the chance within one run.

    ``metric`` is a path such as ``ttft_s.p90``; the frames are requests (``REQUEST_COLUMNS``). None
    with fewer than ``MIN_REQUESTS`` that finished on both sides, and where a resampled figure is 0,
    which has no logarithm. The makespan, and so the throughput, ends with one request: its chance
    is that of one end-to-end latency.
    """
    name, _, point = metric.partition(".")
    latency = "e2e_s" if metric == _THROUGHPUT else name
    both = _paired(latency, predicted, measured)
    if len(both) < MIN_REQUESTS:
        return None
    if metric == _THROUGHPUT:
        span_s = float(measured["last_token_s"].max() - measured["scheduled_s"].min())
        off = float(np.std(both[:, 0] - both[:, 1], ddof=1)) / span_s
        return RelativeVariance(off**2, len(both) - 1)
    size = round(math.sqrt(len(both)))
    blocks = math.ceil(len(both) / size)
    starts = np.random.default_rng(0).integers(len(both), size=(_RESAMPLES, blocks, 1))
    rows = (starts + np.arange(size)).reshape(_RESAMPLES, -1)[:, : len(both)] % len(both)
    resampled = _figure(both[rows], point)
    if resampled.min() <= 0:
        return None
    ratios = np.log(resampled[:, 0] / resampled[:, 1])
    return RelativeVariance(float(ratios.var(ddof=1)), blocks - 1)


def error_interval(
    predicted: float,
    standard_error: float,
    measured: Sequence[float],
    within: Sequence[RelativeVariance],
) -> tuple[float, float] | None:
    """Return the interval of (predicted - measured) / measured, at ``CONFIDENCE``.

    ``measured`` has the figure of each run, ``within`` its variance within a run where it is known,
    ``standard_error`` is the Monte-Carlo error of the predicted figure. None where the chance is
    not known: one run, and none within it.
    """
    runs, mean = len(measured), fmean(measured)
    if min(predicted, mean) <= 0 or not (within or runs > 1):
        return None
    inside = fmean(one.value for one in within) if within else 0.0
    between = variance(measured) / mean**2 if runs > 1 else 0.0
    if between > inside:
        of_runs = RelativeVariance(between / runs, runs - 1)
    else:
        of_runs = RelativeVariance(inside / runs, sum(one.freedom for one in within) or math.inf)
    of_draws = RelativeVariance((standard_error / predicted) ** 2, math.inf)
    return ratio_interval(predicted / mean, [of_draws, of_runs])


def ratio_interval(ratio: float, parts: Sequence[RelativeVariance]) -> tuple[float, float]:
    """Return the interval of ``ratio`` - 1, at ``CONFIDENCE``, from independent variances."""
    from scipy.special import stdtrit

    total = sum(part.value for part in parts)
    if total == 0:
        return ratio - 1, ratio - 1
    spent = sum(part.value**2 / min(part.freedom, _MANY) for part in parts)
    half = float(stdtrit(min(total**2 / spent, _MANY), (1 + CONFIDENCE) / 2)) * math.sqrt(total)
    return ratio * math.exp(-half) - 1, ratio * math.exp(half) - 1


def _paired(latency: str, predicted: pd.DataFrame, measured: pd.DataFrame) -> Floats:
    """Return (predicted, measured) [requests, 2] of those with both, in the order of arrival."""
    ours = predicted.set_index("request_id")[latency]
    theirs = measured[measured["status"] == "finished"].sort_values("scheduled_s", kind="stable")
    pairs = np.column_stack(
        [ours.reindex(theirs["request_id"]).to_numpy(float), theirs[latency].to_numpy(float)]
    )
    return np.asarray(pairs[np.isfinite(pairs).all(axis=1)])


def _figure(pairs: Floats, point: str) -> Floats:
    """Return the mean or a percentile (``p90``) over the requests [resamples, requests, 2]."""
    if point == "mean":
        return np.asarray(pairs.mean(axis=1))
    return np.asarray(np.percentile(pairs, float(point[1:]), axis=1))
