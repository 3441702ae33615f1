"""Several equal servers: without a queue (loss), with one queue, in any number.

Loads are in erlangs: arrival rate times mean holding time. Losses hold for every distribution of
holding times with that mean.
"""

from collections.abc import Sequence
from math import log

import numpy as np
import numpy.typing as npt
from scipy.stats import poisson

import servetwin.sim.theory.checks as checks

_RESCALE_ABOVE = 1e200


def erlang_b(servers: int, load_erlangs: float) -> float:
    """Return the share of requests that ``servers`` slots without a queue refuse.

    Erlang 1917, by the recursion B(c) = a B(c - 1) / (c + a B(c - 1)), whose terms are all
    positive (Kleinrock, Queueing Systems I, 1975, chapter 3).
    """
    checks.check_whole(servers=servers)
    checks.check_not_negative(load_erlangs=load_erlangs)
    blocking = 1.0
    for count in range(1, servers + 1):
        blocking = load_erlangs * blocking / (count + load_erlangs * blocking)
    return blocking


def kaufman_roberts(
    capacity_blocks: int, sizes_blocks: Sequence[int], loads_erlangs: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Return the share of refused requests by class, a request holding several blocks.

    A request of class k takes ``sizes_blocks[k]`` blocks wherever they are, or is refused; 1 for a
    class that never fits. Kaufman 1981; Roberts 1981.
    """
    if len(sizes_blocks) != len(loads_erlangs):
        raise checks.TheoryError(
            f"{len(sizes_blocks)} sizes and {len(loads_erlangs)} loads do not pair"
        )
    for size, load in zip(sizes_blocks, loads_erlangs, strict=True):
        checks.check_whole(size_blocks=size)
        checks.check_not_negative(load_erlangs=load)
    occupied = _occupancy(capacity_blocks, sizes_blocks, loads_erlangs)
    starts = [max(0, capacity_blocks - size + 1) for size in sizes_blocks]
    return np.array([occupied[start:].sum() for start in starts])


def _occupancy(
    capacity: int, sizes: Sequence[int], loads: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Return the probabilities of occupied blocks: n g(n) = sum_k a_k b_k g(n - b_k)."""
    checks.check_whole(capacity_blocks=capacity)
    weight = np.zeros(capacity + 1)
    weight[0] = 1.0
    for n in range(1, capacity + 1):
        inflows = (a * b * weight[n - b] for b, a in zip(sizes, loads, strict=True) if b <= n)
        weight[n] = sum(inflows) / n
        if weight[n] > _RESCALE_ABOVE:
            weight[: n + 1] /= weight[n]
    probabilities: npt.NDArray[np.float64] = weight / weight.sum()
    return probabilities


def erlang_c(servers: int, load_erlangs: float) -> float:
    """Return the probability that a request of M/M/c waits: B / (1 - rho (1 - B)).

    B is Erlang's loss of the same load, rho the load per server. Erlang 1917; Kleinrock, Queueing
    Systems I (1975), chapter 3. Raises TheoryError when the load is not below ``servers``.
    """
    blocking = erlang_b(servers, load_erlangs)
    return blocking / (1 - checks.stable(load_erlangs / servers) * (1 - blocking))


def mmc_wait_s(servers: int, rate_per_s: float, service_s: float) -> float:
    """Return the mean wait in M/M/c: Erlang C times S / (c - load)."""
    checks.check_positive(service_s=service_s)
    load = rate_per_s * service_s
    return erlang_c(servers, load) * service_s / (servers - load)


def mmc_wait_quantile_s(
    probability: float, servers: int, rate_per_s: float, service_s: float
) -> float:
    """Return the wait that a share ``probability`` of the requests in M/M/c stay within.

    P(wait > t) = C exp(-(c - load) t / S) (Erlang 1917); 0 where fewer than 1 - ``probability``
    wait at all.
    """
    checks.check_probability(probability=probability)
    checks.check_positive(service_s=service_s)
    load = rate_per_s * service_s
    waiting = erlang_c(servers, load)
    if waiting <= 1 - probability:
        return 0.0
    return log(waiting / (1 - probability)) * service_s / (servers - load)


def mg_infinity_probability(count: int, rate_per_s: float, service_s: float) -> float:
    """Return the Poisson probability of ``count`` in service in M/G/infinity.

    Holds for every service time of that mean. Takacs, Introduction to the Theory of Queues (1962).
    """
    checks.check_not_negative(count=count, rate_per_s=rate_per_s, service_s=service_s)
    return float(poisson.pmf(count, rate_per_s * service_s))


def mg_infinity_quantile(probability: float, rate_per_s: float, service_s: float) -> int:
    """Return the fewest slots that hold M/G/infinity for a share ``probability`` of the time."""
    checks.check_probability(probability=probability)
    checks.check_positive(rate_per_s=rate_per_s, service_s=service_s)
    return max(0, int(poisson.ppf(probability, rate_per_s * service_s)))
