"""A server that takes all who wait as its next batch: no bound on the batch, no waiting to fill it.

A batch of b takes ``per_request_s * b + fixed_s`` seconds; requests come as a Poisson process. The
model and its bound: Inoue, Queueing analysis of GPU-based inference servers with dynamic batching,
Performance Evaluation 147 (2021).
"""

from dataclasses import dataclass
from math import exp, expm1

from sim.theory.checks import TheoryError, check_not_negative, check_positive, stable

_NEGLIGIBLE = 1e-17
_MAX_TERMS = 1 << 20


@dataclass(frozen=True, slots=True)
class BatchQueue:
    """Steady state of a batching server.

    ``mean_batch``: requests per batch; ``sojourn_s``: mean time from arrival to the end of service.
    """

    mean_batch: float
    sojourn_s: float


def batch_service(rate_per_s: float, per_request_s: float, fixed_s: float) -> BatchQueue:
    """Exact steady state. Raises TheoryError unless rate * per_request_s is below 1.

    During a batch of b come A ~ Poisson(rate * service) and the next batch is max(1, A): its first
    two moments follow from those of A and the probability that A = 0. The sojourn is the mean area
    under the number present during one batch, over the mean batch (Little).
    """
    slope, fixed = _load(rate_per_s, per_request_s, fixed_s), rate_per_s * fixed_s
    mean = (fixed + _none_left(slope, fixed)) / (1 - slope)
    # E[(rate * service)^2] = E[(slope B + fixed)^2], and E[B^2] is E[B] plus that
    squared = (fixed**2 + (2 * fixed + slope) * slope * mean) / (1 - slope**2)
    queue_s = squared / (2 * rate_per_s * mean)
    return BatchQueue(mean, queue_s + per_request_s * (1 + squared / mean) + fixed_s)


def batch_service_bounds_s(
    rate_per_s: float, per_request_s: float, fixed_s: float
) -> tuple[float, float]:
    """Inoue's two upper bounds on the mean sojourn (Theorem 2); the smaller one is close to it.

    The first is the smaller exactly when rate * (per_request_s + fixed_s) <= 1.
    """
    slope = _load(rate_per_s, per_request_s, fixed_s)
    fixed = rate_per_s * fixed_s
    light = (per_request_s + fixed_s) / (2 * (1 - slope))
    light *= 1 + 2 * fixed + (1 - fixed) / (1 + slope)
    heavy = 1.5 * fixed_s / (1 - slope)
    heavy += per_request_s / 2 * (slope + 2) / (1 - slope**2)
    return light, heavy


def _load(rate_per_s: float, per_request_s: float, fixed_s: float) -> float:
    check_positive(rate_per_s=rate_per_s, service_of_one_s=per_request_s + fixed_s)
    check_not_negative(per_request_s=per_request_s, fixed_s=fixed_s)
    return stable(rate_per_s * per_request_s)


def _none_left(slope: float, fixed: float) -> float:
    """Probability that nobody came during a batch.

    The generating function of the batch obeys
    G(z) = exp(-fixed (1 - z)) G(exp(-slope (1 - z))) - (1 - z) P(A = 0). Followed from G(0) = 0,
    its argument tends to 1, where G is 1; ``gap`` is 1 minus the argument, so no term cancels.
    """
    gap, factor, weighted = 1.0, 1.0, 0.0
    for _ in range(_MAX_TERMS):
        weighted += factor * gap
        factor *= exp(-fixed * gap)
        gap = -expm1(-slope * gap)
        if gap <= _NEGLIGIBLE * (1 - slope) or factor <= _NEGLIGIBLE:
            return factor / weighted
    raise TheoryError("rate_per_s * per_request_s is too close to 1 to be summed; lower the rate")
