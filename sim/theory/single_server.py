"""One server, Poisson arrivals: first come first served, and processor sharing.

``service_s`` is the mean service time and ``service_cv`` its coefficient of variation. Waits
exclude service, sojourns include it. All raise TheoryError at a utilisation of 1 or more.
"""

from math import log1p, sqrt

import servetwin.sim.theory.checks as checks


def mg1_wait_s(rate_per_s: float, service_s: float, service_cv: float) -> float:
    """Return the mean wait in M/G/1: rho S (1 + cv^2) / (2 (1 - rho)).

    Pollaczek 1930 and Khinchine 1932; Kleinrock, Queueing Systems I (1975), chapter 5.
    """
    checks.check_not_negative(service_cv=service_cv)
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
    checks.check_probability(probability=probability)
    return -log1p(-probability) * mm1_sojourn_s(rate_per_s, service_s)


def mm1_wait_relative_error(utilisation: float, requests: int) -> float:
    """Return the standard error of the mean wait over ``requests`` requests, over that mean.

    From the asymptotic variance of M/M/1 waits, rho (2 + 5 rho - 4 rho^2 + rho^3) / (1 - rho)^4 in
    squared service times (Daley 1968), and the mean rho / (1 - rho).
    """
    checks.check_positive(utilisation=utilisation)
    checks.check_whole(requests=requests)
    rho = checks.stable(utilisation)
    variance = rho * (2 + 5 * rho - 4 * rho**2 + rho**3) / (1 - rho) ** 4
    return sqrt(variance / requests) * (1 - rho) / rho


def processor_sharing_sojourn_s(size_s: float, rate_per_s: float, mean_size_s: float) -> float:
    """Return the mean sojourn of a request that alone takes ``size_s``: size / (1 - rho).

    Holds for every distribution of sizes with mean ``mean_size_s``; with ``size_s`` equal to it, it
    is the mean sojourn of all. Sakata, Noguchi and Oizumi 1971; Kleinrock, Queueing Systems II
    (1976), chapter 4.
    """
    checks.check_not_negative(size_s=size_s)
    return size_s / (1 - _load(rate_per_s, mean_size_s))


def _load(rate_per_s: float, service_s: float) -> float:
    """Share of the time that the server works: rho = rate * service time, below 1."""
    checks.check_not_negative(rate_per_s=rate_per_s)
    checks.check_positive(service_s=service_s)
    return checks.stable(rate_per_s * service_s)
