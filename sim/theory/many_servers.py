"""Several equal servers with one queue, and servers without number."""

from math import log

from scipy.stats import poisson

from sim.theory.checks import (
    check_not_negative,
    check_positive,
    check_probability,
    stable,
)
from sim.theory.loss import erlang_b


def erlang_c(servers: int, load_erlangs: float) -> float:
    """Probability that a request of M/M/c has to wait: B / (1 - rho (1 - B)).

    B is Erlang's loss of the same load, rho the load per server. Erlang 1917; Kleinrock, Queueing
    Systems I (1975), chapter 3. Raises TheoryError when the load is not below ``servers``.
    """
    blocking = erlang_b(servers, load_erlangs)
    return blocking / (1 - stable(load_erlangs / servers) * (1 - blocking))


def mmc_wait_s(servers: int, rate_per_s: float, service_s: float) -> float:
    """Mean wait in M/M/c: Erlang C times the mean wait of those who wait, S / (c - load)."""
    check_positive(service_s=service_s)
    load = rate_per_s * service_s
    return erlang_c(servers, load) * service_s / (servers - load)


def mmc_wait_quantile_s(
    probability: float, servers: int, rate_per_s: float, service_s: float
) -> float:
    """Wait that a share ``probability`` of the requests in M/M/c stay within.

    P(wait > t) = C exp(-(c - load) t / S) (Erlang 1917); 0 where fewer than 1 - ``probability``
    wait at all.
    """
    check_probability(probability=probability)
    check_positive(service_s=service_s)
    load = rate_per_s * service_s
    waiting = erlang_c(servers, load)
    if waiting <= 1 - probability:
        return 0.0
    return log(waiting / (1 - probability)) * service_s / (servers - load)


def mg_infinity_probability(count: int, rate_per_s: float, service_s: float) -> float:
    """Probability that ``count`` are in service in M/G/infinity: Poisson, mean rate * service.

    Holds for every service law with that mean. Takacs, Introduction to the Theory of Queues (1962).
    """
    check_not_negative(count=count, rate_per_s=rate_per_s, service_s=service_s)
    return float(poisson.pmf(count, rate_per_s * service_s))


def mg_infinity_quantile(probability: float, rate_per_s: float, service_s: float) -> int:
    """Fewest slots that hold all of M/G/infinity for a share ``probability`` of the time."""
    check_probability(probability=probability)
    check_positive(rate_per_s=rate_per_s, service_s=service_s)
    return max(0, int(poisson.ppf(probability, rate_per_s * service_s)))
