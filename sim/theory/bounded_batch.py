"""A server that takes at most ``max_batch`` of those who wait, in order, as its next batch."""

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_banded
from scipy.stats import poisson

from sim.theory.batch_service import BatchQueue
from sim.theory.checks import TheoryError, check_not_negative, check_positive, check_whole, stable

FloatArray = npt.NDArray[np.float64]

_NEGLIGIBLE = 1e-15
_MAX_CELLS = 1 << 25


def bounded_batch_service(
    rate_per_s: float, per_request_s: float, fixed_s: float, max_batch: int
) -> BatchQueue:
    """Steady state where a batch of b takes ``per_request_s * b + fixed_s`` seconds.

    From the chain of those left behind at the ends of batches (Bailey 1954), to about 1e-10; a
    lonely server starts with its first arrival. ``max_batch`` 1 is M/D/1, a bound that is never
    met is ``batch_service``. Raises TheoryError when full batches cannot keep up.
    """
    check_positive(rate_per_s=rate_per_s, service_of_one_s=per_request_s + fixed_s)
    check_not_negative(per_request_s=per_request_s, fixed_s=fixed_s)
    check_whole(max_batch=max_batch)
    stable(rate_per_s * (per_request_s * max_batch + fixed_s) / max_batch)
    left = _left_behind(rate_per_s * per_request_s, rate_per_s * fixed_s, max_batch)
    present = np.maximum(np.arange(len(left)), 1)
    batch = np.minimum(present, max_batch)
    service_s = per_request_s * batch + fixed_s
    area_s = float(left @ (present * service_s + rate_per_s * service_s**2 / 2))
    mean_batch = float(left @ batch)
    return BatchQueue(mean_batch, area_s / mean_batch)


def _left_behind(slope: float, fixed: float, max_batch: int) -> FloatArray:
    """Probability of each number left behind, the far tail cut off where it is negligible."""
    mean = slope * np.arange(1, max_batch + 1, dtype=np.float64) + fixed
    most = int(mean[-1] + 10 * np.sqrt(mean[-1]) + 40)  # more come once in 1e20 batches
    typical = int(fixed / (1 - slope))
    states = 64 + 4 * (max_batch + typical)
    while states * (max_batch + most) <= _MAX_CELLS:
        left = _stationary(mean, most, states, typical)
        if left[-max_batch:].sum() < _NEGLIGIBLE:
            return left
        states *= 2
    raise TheoryError(
        "the utilisation is too close to 1, or the batch too large, to solve the chain; lower the "
        "rate or max_batch, or take batch_service, which has no bound"
    )


def _stationary(mean: FloatArray, most: int, states: int, typical: int) -> FloatArray:
    """Solves (I - P^T) x = 0 with the equation of a likely state replaced by x = 1 there.

    ``mean[b - 1]`` come during a batch of b, Poisson, never more than ``most``. From j left behind,
    k arrivals lead to max(j - max_batch, 0) + k, so the matrix is a band.
    """
    max_batch, arrivals = len(mean), poisson.pmf(np.arange(most + 1), mean[:, None])
    band = np.zeros((max_batch + most + 1, states))
    band[: most + 1] = -arrivals[-1][:, None]
    for j in range(max_batch):
        band[:, j] = 0
        band[max_batch - j : max_batch - j + most + 1, j] = -arrivals[max(j, 1) - 1]
    band[max_batch] += 1
    columns = np.arange(max(0, typical - most), min(states, typical + max_batch + 1))
    band[max_batch + typical - columns, columns] = 0
    band[max_batch, typical] = 1
    right = np.zeros(states)
    right[typical] = 1
    weights = solve_banded((most, max_batch), band, right, overwrite_ab=True)
    probabilities: FloatArray = weights / weights.sum()
    return probabilities
