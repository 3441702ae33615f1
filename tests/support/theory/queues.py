"""Queues with Poisson arrivals: one server, several, priorities, stations in a row or in a loop.

Loads of several servers are in erlangs: arrival rate times mean holding time. ``service_s`` is the
mean service time and ``service_cv`` its coefficient of variation. Waits exclude service, sojourns
include it. All raise TheoryError at a utilisation of 1 or more, except where nothing queues.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, log, log1p, sqrt

import numpy as np
import numpy.typing as npt
from scipy.stats import poisson

from servetwin.workloads.errors import ServetwinError

FloatArray = npt.NDArray[np.float64]


def mg1_wait_s(rate_per_s: float, service_s: float, service_cv: float) -> float:
    """Return the mean wait in M/G/1: rho S (1 + cv^2) / (2 (1 - rho)).

    Pollaczek 1930 and Khinchine 1932; Kleinrock, Queueing Systems I (1975), chapter 5.
    """
    check_not_negative(service_cv=service_cv)
    load = _load(rate_per_s, service_s)
    return load * service_s * (1 + service_cv**2) / (2 * (1 - load))


def md1_wait_s(rate_per_s: float, service_s: float) -> float:
    """Return the mean wait in M/D/1, equal service times: Pollaczek-Khinchine with cv 0."""
    return mg1_wait_s(rate_per_s, service_s, 0.0)


def mm1_sojourn_s(rate_per_s: float, service_s: float) -> float:
    """Return the mean sojourn in M/M/1: S / (1 - rho). Kleinrock I, chapter 3."""
    return service_s / (1 - _load(rate_per_s, service_s))


def mm1_sojourn_quantile_s(probability: float, rate_per_s: float, service_s: float) -> float:
    """Return the sojourn that a share ``probability`` of the requests in M/M/1 stay within.

    The sojourn is exponential (Kleinrock I, chapter 5), so the quantile is
    -ln(1 - probability) times its mean.
    """
    check_probability(probability=probability)
    return -log1p(-probability) * mm1_sojourn_s(rate_per_s, service_s)


def mm1_wait_relative_error(utilisation: float, requests: int) -> float:
    """Return the standard error of the mean wait over ``requests`` requests, over that mean.

    From the asymptotic variance of M/M/1 waits, rho (2 + 5 rho - 4 rho^2 + rho^3) / (1 - rho)^4 in
    squared service times (Daley 1968), and the mean rho / (1 - rho).
    """
    check_positive(utilisation=utilisation)
    check_whole(requests=requests)
    rho = stable(utilisation)
    variance = rho * (2 + 5 * rho - 4 * rho**2 + rho**3) / (1 - rho) ** 4
    return sqrt(variance / requests) * (1 - rho) / rho


def processor_sharing_sojourn_s(size_s: float, rate_per_s: float, mean_size_s: float) -> float:
    """Return the mean sojourn of a request that alone takes ``size_s``: size / (1 - rho).

    Holds for every distribution of sizes with mean ``mean_size_s``; with ``size_s`` equal to it, it
    is the mean sojourn of all. Sakata, Noguchi and Oizumi 1971; Kleinrock, Queueing Systems II
    (1976), chapter 4.
    """
    check_not_negative(size_s=size_s)
    return size_s / (1 - _load(rate_per_s, mean_size_s))


def _load(rate_per_s: float, service_s: float) -> float:
    """Share of the time that the server works: rho = rate * service time, below 1."""
    check_not_negative(rate_per_s=rate_per_s)
    check_positive(service_s=service_s)
    return stable(rate_per_s * service_s)


class TheoryError(ServetwinError):
    """A closed form was asked about a system that it does not describe."""


def check_positive(**values: float) -> None:
    """Raise TheoryError unless every value is finite and above 0."""
    _check(values, lambda value: isfinite(value) and value > 0, "a positive number")


def check_not_negative(**values: float) -> None:
    """Raise TheoryError unless every value is finite and at least 0."""
    _check(values, lambda value: isfinite(value) and value >= 0, "0 or a positive number")


def check_whole(**values: float) -> None:
    """Raise TheoryError unless every value is a whole number of at least 1."""
    _check(values, lambda v: v >= 1 and float(v).is_integer(), "a whole number of at least 1")


def check_probability(**values: float) -> None:
    """Raise TheoryError unless every value lies in [0, 1)."""
    _check(values, lambda value: 0 <= value < 1, "at least 0 and below 1")


def _check(values: dict[str, float], holds: Callable[[float], bool], right: str) -> None:
    for name, value in values.items():
        if not holds(value):
            raise TheoryError(f"{name} must be {right}, not {value:g}")


def stable(utilisation: float) -> float:
    """Return the utilisation; raise TheoryError from 1 on, where the queue grows without bound."""
    if not utilisation < 1:
        raise TheoryError(
            f"a utilisation of {utilisation:g} has no steady state; lower the arrival rate or the "
            "service time until it is below 1"
        )
    return utilisation


_RESCALE_ABOVE = 1e200


def erlang_b(servers: int, load_erlangs: float) -> float:
    """Return the share of requests that ``servers`` slots without a queue refuse.

    Erlang 1917, by the recursion B(c) = a B(c - 1) / (c + a B(c - 1)), whose terms are all
    positive (Kleinrock, Queueing Systems I, 1975, chapter 3).
    """
    check_whole(servers=servers)
    check_not_negative(load_erlangs=load_erlangs)
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
        raise TheoryError(f"{len(sizes_blocks)} sizes and {len(loads_erlangs)} loads do not pair")
    for size, load in zip(sizes_blocks, loads_erlangs, strict=True):
        check_whole(size_blocks=size)
        check_not_negative(load_erlangs=load)
    occupied = _occupancy(capacity_blocks, sizes_blocks, loads_erlangs)
    starts = [max(0, capacity_blocks - size + 1) for size in sizes_blocks]
    return np.array([occupied[start:].sum() for start in starts])


def _occupancy(
    capacity: int, sizes: Sequence[int], loads: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Return the probabilities of occupied blocks: n g(n) = sum_k a_k b_k g(n - b_k)."""
    check_whole(capacity_blocks=capacity)
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
    return blocking / (1 - stable(load_erlangs / servers) * (1 - blocking))


def mmc_wait_s(servers: int, rate_per_s: float, service_s: float) -> float:
    """Return the mean wait in M/M/c: Erlang C times S / (c - load)."""
    check_positive(service_s=service_s)
    load = rate_per_s * service_s
    return erlang_c(servers, load) * service_s / (servers - load)


def mmc_wait_quantile_s(
    probability: float, servers: int, rate_per_s: float, service_s: float
) -> float:
    """Return the wait that a share ``probability`` of the requests in M/M/c stay within.

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
    """Return the Poisson probability of ``count`` in service in M/G/infinity.

    Holds for every service time of that mean. Takacs, Introduction to the Theory of Queues (1962).
    """
    check_not_negative(count=count, rate_per_s=rate_per_s, service_s=service_s)
    return float(poisson.pmf(count, rate_per_s * service_s))


def mg_infinity_quantile(probability: float, rate_per_s: float, service_s: float) -> int:
    """Return the fewest slots that hold M/G/infinity for a share ``probability`` of the time."""
    check_probability(probability=probability)
    check_positive(rate_per_s=rate_per_s, service_s=service_s)
    return max(0, int(poisson.ppf(probability, rate_per_s * service_s)))


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """Poisson requests of one urgency; mean service time and its coefficient of variation."""

    rate_per_s: float
    service_s: float
    service_cv: float = 0.0

    def __post_init__(self) -> None:
        check_not_negative(rate_per_s=self.rate_per_s, service_cv=self.service_cv)
        check_positive(service_s=self.service_s)


def priority_waits_s(classes: Sequence[PriorityClass]) -> FloatArray:
    """Return the mean wait of each class, the most urgent first, in nonpreemptive M/G/1.

    Cobham 1954: R / ((1 - load of the more urgent) (1 - that load with the own one)), where
    R = sum rate E[S^2] / 2 is the mean rest of the service an arrival finds.
    """
    if not classes:
        raise TheoryError("priorities want at least one class")
    rates = np.array([c.rate_per_s for c in classes])
    means = np.array([c.service_s for c in classes])
    squares = means**2 * (1 + np.array([c.service_cv for c in classes]) ** 2)
    return _cobham_s(rates * means, float(rates @ squares) / 2)


def sjf_waits_s(
    rate_per_s: float, sizes_s: Sequence[float], probabilities: Sequence[float]
) -> FloatArray:
    """Return the mean wait by size under nonpreemptive shortest job first, ties by arrival.

    Cobham's classes, one per size (Phipps 1956). The mean over all requests is
    ``probabilities @ waits``.
    """
    check_not_negative(rate_per_s=rate_per_s)
    if len(sizes_s) != len(probabilities) or abs(sum(probabilities) - 1) > 1e-9:
        raise TheoryError("sizes want one probability each, adding up to 1")
    for size, probability in zip(sizes_s, probabilities, strict=True):
        check_positive(size_s=size)
        check_not_negative(probability=probability)
    sizes, places = np.unique(np.asarray(sizes_s, np.float64), return_inverse=True)
    rates = rate_per_s * np.bincount(places, weights=probabilities)
    waits: FloatArray = _cobham_s(rates * sizes, float(rates @ sizes**2) / 2)[places]
    return waits


def _cobham_s(loads: FloatArray, residual_s: float) -> FloatArray:
    up_to_own = np.cumsum(loads)
    stable(float(up_to_own[-1]))
    more_urgent = up_to_own - loads
    waits: FloatArray = residual_s / ((1 - more_urgent) * (1 - up_to_own))
    return waits


def number_integral_s(enter_s: npt.ArrayLike, leave_s: npt.ArrayLike) -> float:
    """Return the integral over time of the number present, from events of entering and leaving."""
    enter, leave = _spans(enter_s, leave_s)
    moments = np.concatenate([enter, leave])
    changes = np.repeat([1, -1], len(enter))
    order = np.argsort(moments, kind="stable")
    present = np.cumsum(changes[order])[:-1]
    return float(present @ np.diff(moments[order]))


def littles_law_gap(enter_s: npt.ArrayLike, leave_s: npt.ArrayLike) -> float:
    """Return the relative gap of the integral of the number present and the sum of sojourns.

    Zero but for rounding on any run that starts and ends empty (Little 1961).
    """
    enter, leave = _spans(enter_s, leave_s)
    sojourns_s = float((leave - enter).sum())
    if not sojourns_s > 0:
        raise TheoryError("no request stayed: Little's law has nothing to compare")
    return abs(number_integral_s(enter, leave) / sojourns_s - 1)


def _spans(enter_s: npt.ArrayLike, leave_s: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    enter, leave = np.asarray(enter_s, np.float64), np.asarray(leave_s, np.float64)
    if enter.shape != leave.shape or not (leave >= enter).all():
        raise TheoryError("every request wants one time of entering and a later one of leaving")
    return enter, leave


def tandem_sojourn_s(rate_per_s: float, services_s: Sequence[float]) -> float:
    """Return the mean sojourn through exponential servers in a row, Poisson arrivals.

    What leaves M/M/1 is Poisson again (Burke 1956), so the stations add up (Jackson 1957). Two of
    them are a prefill and a decode pool with a transfer that takes no time.
    """
    return sum(mm1_sojourn_s(rate_per_s, service_s) for service_s in services_s)


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Steady state of a closed loop; ``mean_in_station`` counts waiting and served requests."""

    throughput_per_s: float
    sojourn_s: float
    mean_in_station: tuple[float, ...]


def closed_loop(clients: int, think_s: float, services_s: Sequence[float]) -> ClosedLoop:
    """Return the steady state of clients that think, send one request, and think again.

    Exponential thinking and service, first come first served. Mean value analysis (Reiser and
    Lavenberg 1980): an arrival sees the steady state with one client less.
    """
    _check_loop(clients, think_s, services_s)
    inside = [0.0] * len(services_s)
    for count in range(1, clients + 1):
        stays_s = [s * (1 + n) for s, n in zip(services_s, inside, strict=True)]
        throughput_per_s = count / (think_s + sum(stays_s))
        inside = [throughput_per_s * stay_s for stay_s in stays_s]
    return ClosedLoop(throughput_per_s, sum(stays_s), tuple(inside))


def closed_loop_throughput_bound_per_s(
    clients: int, think_s: float, services_s: Sequence[float]
) -> float:
    """Return the throughput without any waiting, or of an always busy station if that is less.

    Denning and Buzen 1978 (operational analysis); holds for every distribution of service.
    """
    _check_loop(clients, think_s, services_s)
    return min(clients / (think_s + sum(services_s)), 1 / max(services_s))


def _check_loop(clients: int, think_s: float, services_s: Sequence[float]) -> None:
    check_whole(clients=clients)
    check_not_negative(think_s=think_s)
    if not services_s:
        raise TheoryError("a closed loop wants at least one station")
    for service_s in services_s:
        check_positive(service_s=service_s)
