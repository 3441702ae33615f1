"""Batches: all waiting requests, a bounded number of them, iteration-level and static batching.

Requests come as a Poisson process. A batch of b takes ``per_request_s * b + fixed_s`` seconds
(Inoue, Queueing analysis of GPU-based inference servers with dynamic batching, Performance
Evaluation 147, 2021). With iteration-level batching (gated), all waiting requests join at the next
step boundary, and each needs ``steps`` steps of ``step_s`` seconds whatever the batch. With static
batching, a batch runs until its longest request ends; slot efficiency is
E[X] / E[max of the batch], the share of the steps of a saturated server that make a token.
"""

from dataclasses import dataclass
from math import exp, expm1

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_banded
from scipy.stats import poisson

from tests.support.theory.queues import (
    TheoryError,
    check_not_negative,
    check_positive,
    check_whole,
    stable,
)

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
    """Return the exact steady state. Raises TheoryError unless rate * per_request_s is below 1.

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
    """Return Inoue's two upper bounds on the mean sojourn (Theorem 2); the smaller is close.

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
    _check_service(rate_per_s, per_request_s, fixed_s)
    return stable(rate_per_s * per_request_s)


def _check_service(rate_per_s: float, per_request_s: float, fixed_s: float) -> None:
    check_positive(rate_per_s=rate_per_s, service_of_one_s=per_request_s + fixed_s)
    check_not_negative(per_request_s=per_request_s, fixed_s=fixed_s)


def _none_left(slope: float, fixed: float) -> float:
    """Return the probability that no request came during a batch.

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


FloatArray = npt.NDArray[np.float64]

_NEGLIGIBLE_LEFT = 1e-15
_MAX_CELLS = 1 << 25


def bounded_batch_service(
    rate_per_s: float, per_request_s: float, fixed_s: float, max_batch: int
) -> BatchQueue:
    """Return the steady state of batches of at most ``max_batch`` requests.

    From the chain of requests left behind at the ends of batches (Bailey 1954), to about 1e-10; a
    lonely server starts with its first arrival. ``max_batch`` 1 is M/D/1, a bound that is never
    met is ``batch_service``. Raises TheoryError when full batches cannot keep up.
    """
    _check_service(rate_per_s, per_request_s, fixed_s)
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
    """Return the probability of each number left behind, without the negligible far tail."""
    mean = slope * np.arange(1, max_batch + 1, dtype=np.float64) + fixed
    most = int(mean[-1] + 10 * np.sqrt(mean[-1]) + 40)  # more come once in 1e20 batches
    typical = int(fixed / (1 - slope))
    states = 64 + 4 * (max_batch + typical)
    while states * (max_batch + most) <= _MAX_CELLS:
        left = _stationary(mean, most, states, typical)
        if left[-max_batch:].sum() < _NEGLIGIBLE_LEFT:
            return left
        states *= 2
    raise TheoryError(
        "the utilisation is too close to 1, or the batch too large, to solve the chain; lower the "
        "rate or max_batch, or take batch_service, which has no bound"
    )


def _stationary(mean: FloatArray, most: int, states: int, typical: int) -> FloatArray:
    """Solve (I - P^T) x = 0 with the equation of a likely state replaced by x = 1 there.

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


def gated_idle_probability(rate_per_s: float, step_s: float, steps: int) -> float:
    """Return the share of the time that the server is idle.

    An idle spell lasts 1 / rate. A busy one ends with the first run of ``steps`` steps without an
    arrival, after (1 - q^m) / ((1 - q) q^m) steps on average, q = exp(-rate * step_s) (Feller, An
    Introduction to Probability Theory I, section XIII.7).
    """
    check_positive(rate_per_s=rate_per_s, step_s=step_s)
    check_whole(steps=steps)
    per_step = rate_per_s * step_s
    idle = exp(-steps * per_step) * -expm1(-per_step)
    return idle / (idle - per_step * expm1(-steps * per_step))


def gated_sojourn_s(rate_per_s: float, step_s: float, steps: int) -> float:
    """Return the mean sojourn: the steps of a request, and half a step if the server is busy.

    Poisson arrivals see time averages, and one within a step comes uniformly in it.
    """
    idle = gated_idle_probability(rate_per_s, step_s, steps)
    return steps * step_s + (1 - idle) * step_s / 2


def gated_mean_in_system(rate_per_s: float, step_s: float, steps: int) -> float:
    """Return the time average of the requests present, by Little's law.

    Near rate * (steps + 1/2) * step_s, as M/G/infinity with half a step more, where the server is
    hardly ever idle.
    """
    return rate_per_s * gated_sojourn_s(rate_per_s, step_s, steps)


def static_batch_makespan_s(
    batch: int,
    prompt_tokens: int,
    output_tokens: int,
    *,
    prefill_s: float,
    step_s: float,
    per_context_token_s: float,
) -> float:
    """Return the seconds of ``batch`` equal requests that start together.

    The prefill makes the first tokens; decode step j costs
    ``step_s + per_context_token_s * batch * (prompt_tokens + j)``, an arithmetic series.
    """
    check_whole(batch=batch, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    check_not_negative(prefill_s=prefill_s, step_s=step_s, per_context_token_s=per_context_token_s)
    per_position_s = per_context_token_s * batch
    steps = output_tokens - 1
    growth_s = per_position_s * output_tokens * steps / 2
    return prefill_s + steps * (step_s + per_position_s * prompt_tokens) + growth_s


def exponential_slot_efficiency(batch: int) -> float:
    """Return that of exponential lengths: 1 / (1 + 1/2 + ... + 1/batch) (Renyi 1953)."""
    check_whole(batch=batch)
    return float(1 / (1 / np.arange(1, batch + 1)).sum())


def geometric_slot_efficiency(batch: int, mean_tokens: float) -> float:
    """Return that of geometric lengths of 1, 2, ...: the mean over the sum of P(longest > k)."""
    check_whole(batch=batch)
    if not (np.isfinite(mean_tokens) and mean_tokens >= 1):
        raise TheoryError(f"mean_tokens must be at least 1, not {mean_tokens:g}")
    if mean_tokens == 1:
        return 1.0
    log_more = np.log1p(-1 / mean_tokens)  # of the probability of one token more
    lengths = np.arange(1, 1 + int(np.ceil(np.log(1e-17 / batch) / log_more)))
    longer = -np.expm1(batch * np.log1p(-np.exp(lengths * log_more)))
    return float(mean_tokens / (1 + longer.sum()))


def uniform_slot_efficiency(batch: int, longest_tokens: int) -> float:
    """Return that of lengths uniform on 1 ... M: E[max] = M - sum over k < M of (k / M)^batch."""
    check_whole(batch=batch, longest_tokens=longest_tokens)
    below = np.arange(1, longest_tokens) / longest_tokens
    return float((longest_tokens + 1) / 2 / (longest_tokens - (below**batch).sum()))


def uniform_slot_efficiency_limit(batch: int) -> float:
    """Return that of lengths uniform on an interval from 0: (batch + 1) / (2 batch)."""
    check_whole(batch=batch)
    return (batch + 1) / (2 * batch)


def mean_longest(lengths: npt.ArrayLike, batch: int) -> float:
    """Return E[max] of ``batch`` draws with replacement from a sample of lengths.

    The i-th smallest of n is the longest with probability (i/n)^batch - ((i-1)/n)^batch.
    """
    check_whole(batch=batch)
    ordered = np.sort(np.asarray(lengths, np.float64))
    if ordered.size == 0:
        raise TheoryError("no lengths to draw from")
    check_positive(shortest_length=float(ordered[0]))
    at_most = (np.arange(ordered.size + 1) / ordered.size) ** batch
    return float(ordered @ np.diff(at_most))


def sampled_slot_efficiency(lengths: npt.ArrayLike, batch: int) -> float:
    """Return the slot efficiency of a sample of lengths."""
    longest = mean_longest(lengths, batch)
    return float(np.mean(np.asarray(lengths, np.float64))) / longest
