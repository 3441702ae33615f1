"""Arrival processes with independent gaps, of one client or of many, and what each offers.

The first request of a generated trace arrives at 0; a process spaces the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, expm1, gamma, isfinite, lgamma, log, log1p, sqrt
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from servetwin.workloads.errors import TraceError


def describe(drawn: object) -> str:
    """Return the description of a distribution, or the name of its class if it has none.

    That is a phrase without a capital or a full stop.
    """
    description: Callable[[], str] | None = getattr(drawn, "describe", None)
    return description() if description else f"by {type(drawn).__name__}"


def capped(least: int, most: int | None) -> str:
    """Return the caps of a distribution as the end of a phrase; empty without any."""
    if most is None:
        return f", at least {least:,}" if least > 1 else ""
    return f", at most {most:,}" if least == 1 else f", {least:,} to {most:,}"


FloatArray = NDArray[np.float64]

_Z90 = 1.2815515655446004
"""The 90 % point of the standard normal distribution."""
_BURSTIEST, _STEADIEST = 0.1, 1000.0
"""The Weibull shapes that are asked for: beyond, the gamma function leaves the floats."""


class ArrivalProcess(Protocol):
    """Draws the gaps between arrivals."""

    @property
    def rate_per_s(self) -> float:
        """The mean rate in the long run."""

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` gaps in seconds."""


class RenewalProcess(ArrivalProcess, Protocol):
    """A process of independent gaps, which can also be met at a random moment."""

    def residual_s(self, rng: np.random.Generator) -> float:
        """Return seconds from a random moment to the next arrival: a uniform part of a
        length-biased gap.

        Source: Cox, Renewal Theory (1962), chapter 5.
        """


@dataclass(frozen=True, slots=True)
class RatedArrivals:
    """A process with a mean rate; ``phrase`` describes it, with its fields in braces."""

    rate_per_s: float
    phrase: ClassVar[str]

    def __post_init__(self) -> None:
        check_positive("rate", self.rate_per_s)

    def describe(self) -> str:
        """Return the phrase with the values of this process."""
        return self.phrase.format(self)


@dataclass(frozen=True, slots=True)
class ConstantArrivals(RatedArrivals):
    """One request every 1 / rate seconds."""

    phrase: ClassVar[str] = "evenly spaced arrivals at {0.rate_per_s:g}/s"

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` equal gaps in seconds."""
        return np.full(count, 1 / self.rate_per_s)


@dataclass(frozen=True, slots=True)
class PoissonArrivals(RatedArrivals):
    """Independent clients: exponential gaps, coefficient of variation 1."""

    phrase: ClassVar[str] = "Poisson arrivals at {0.rate_per_s:g}/s"

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` exponential gaps in seconds."""
        return rng.exponential(1 / self.rate_per_s, count)


@dataclass(frozen=True, slots=True)
class GammaArrivals(RatedArrivals):
    """Gamma gaps of shape 1 / cv^2: burstier than Poisson above cv 1, steadier below."""

    cv: float = 1.2
    phrase: ClassVar[str] = "arrivals at {0.rate_per_s:g}/s with gamma gaps, CV {0.cv:.3g}"

    def __post_init__(self) -> None:
        RatedArrivals.__post_init__(self)
        check_positive("cv of the arrivals", self.cv)

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` gamma gaps in seconds."""
        return rng.gamma(self.cv**-2, self.cv**2 / self.rate_per_s, count)

    def residual_s(self, rng: np.random.Generator) -> float:
        """Draw a uniform part of a gap of shape + 1, which is the length-biased gamma."""
        return rng.random() * rng.gamma(self.cv**-2 + 1, self.cv**2 / self.rate_per_s)


@dataclass(frozen=True, slots=True)
class WeibullArrivals(RatedArrivals):
    """Weibull gaps by their coefficient of variation; above 1, a heavier tail than gamma gaps."""

    cv: float = 1.2
    phrase: ClassVar[str] = "arrivals at {0.rate_per_s:g}/s with Weibull gaps, CV {0.cv:.3g}"

    def __post_init__(self) -> None:
        RatedArrivals.__post_init__(self)
        weibull_shape(self.cv)

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` Weibull gaps in seconds."""
        return self._scale_s * rng.weibull(weibull_shape(self.cv), count)

    def residual_s(self, rng: np.random.Generator) -> float:
        """Draw part of a length-biased gap, whose k-th power is gamma of shape 1 + 1/k."""
        shape = weibull_shape(self.cv)
        return float(rng.random() * self._scale_s * rng.gamma(1 + 1 / shape) ** (1 / shape))

    @property
    def _scale_s(self) -> float:
        return 1 / (self.rate_per_s * gamma(1 + 1 / weibull_shape(self.cv)))


def weibull_cv(shape: float) -> float:
    """Return the CV of a Weibull distribution of shape k: CV^2 + 1 = G(1 + 2/k) / G(1 + 1/k)^2."""
    return sqrt(expm1(lgamma(1 + 2 / shape) - 2 * lgamma(1 + 1 / shape)))


@cache
def weibull_shape(cv: float) -> float:
    """Return the shape k of a Weibull distribution of this CV. Raises TraceError outside k 0.1 to
    1,000.
    """
    check_positive("cv of the arrivals", cv)
    least, most = weibull_cv(_STEADIEST), weibull_cv(_BURSTIEST)
    if not least <= cv <= most:
        raise TraceError(f"Weibull gaps have a cv of {least:.3g} to {most:.3g}, not {cv:g}")
    wanted = log1p(cv**2)

    def excess(log_shape: float) -> float:
        inverse = exp(-log_shape)
        return lgamma(1 + 2 * inverse) - 2 * lgamma(1 + inverse) - wanted

    from scipy.optimize import brentq  # slow to import, and few need it

    return exp(brentq(excess, log(_BURSTIEST), log(_STEADIEST), xtol=1e-14))


def arrivals_within(process: RenewalProcess, span_s: float, rng: np.random.Generator) -> FloatArray:
    """Return the arrivals in [0, span_s) of a process that began long ago: rate x span_s on
    average.
    """
    times_s = np.array([process.residual_s(rng)])
    batch = int(1.1 * process.rate_per_s * span_s) + 16
    while times_s[-1] < span_s:
        more_s = times_s[-1] + np.cumsum(process.gaps_s(batch, rng))
        times_s = np.concatenate([times_s, more_s])
    return times_s[: np.searchsorted(times_s, span_s)]


@dataclass(frozen=True, slots=True)
class ClientArrivals(RatedArrivals):
    """``clients`` independent gamma processes: client k's rate is proportional to k^-skew.

    Their CVs are lognormal, by median and 90 % point. The defaults are those of the ServeGen
    clients of public models: rates fall with a slope of -1.05 to -1.8.
    """

    clients: int = 50
    skew: float = 1.3
    cv_median: float = 1.2
    cv_p90: float = 5.0
    phrase: ClassVar[str] = (
        "arrivals of {0.clients:,} clients at {0.rate_per_s:g}/s in all (rates fall with skew "
        "{0.skew:.3g}; CVs have median {0.cv_median:.3g}, p90 {0.cv_p90:.3g})"
    )

    def __post_init__(self) -> None:
        RatedArrivals.__post_init__(self)
        check_positive("number of clients", self.clients)
        check_positive("median cv", self.cv_median)
        check_not_negative("skew of the clients", self.skew)
        if self.cv_p90 < self.cv_median:
            least = f"at least the median {self.cv_median:g}"
            raise TraceError(f"the 90 % cv must be {least}, not {self.cv_p90:g}")

    def processes(self, rng: np.random.Generator) -> list[GammaArrivals]:
        """Return the processes of the clients, largest rate first; their rates sum to
        ``rate_per_s``.
        """
        weights = np.arange(1, self.clients + 1, dtype=np.float64) ** -self.skew
        rates = self.rate_per_s * weights / weights.sum()
        sigma = log(self.cv_p90 / self.cv_median) / _Z90
        cvs = rng.lognormal(log(self.cv_median), sigma, self.clients)
        return [GammaArrivals(*pair) for pair in zip(rates.tolist(), cvs.tolist(), strict=True)]

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` gaps in seconds between the arrivals of all clients."""
        cv_rng, times_rng = rng.spawn(2)
        processes = self.processes(cv_rng)
        seeds = times_rng.integers(2**63, size=self.clients).tolist()
        span_s = 1.1 * (count + 1) / self.rate_per_s
        while len(times_s := _merged(processes, seeds, span_s)) <= count:
            span_s *= 2
        return np.diff(times_s[: count + 1])


def _merged(processes: Sequence[GammaArrivals], seeds: list[int], span_s: float) -> FloatArray:
    """Merge the arrivals of all clients in the span; a longer span begins with them."""
    times_s = [
        arrivals_within(process, span_s, np.random.default_rng(seed))
        for process, seed in zip(processes, seeds, strict=True)
    ]
    return np.sort(np.concatenate(times_s))


def check_not_negative(name: str, value: float) -> None:
    """Raise TraceError unless the value is finite and at least 0."""
    if not (isfinite(value) and value >= 0):
        raise TraceError(f"the {name} must be 0 or positive, not {value:g}")


def check_positive(name: str, value: float) -> None:
    """Raise TraceError unless the value is finite and above 0."""
    if not (isfinite(value) and value > 0):
        raise TraceError(f"the {name} must be a positive number, not {value:g}")
