"""Little's law on finished runs, and requests that visit several stations in a row or a loop."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from servetwin.sim.theory.checks import TheoryError, check_not_negative, check_positive, check_whole
from servetwin.sim.theory.single_server import mm1_sojourn_s

FloatArray = npt.NDArray[np.float64]


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
