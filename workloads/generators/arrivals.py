"""Arrival processes with independent gaps, and what each offers.

The first request of a generated trace arrives at 0; a process spaces the others.
"""

from collections.abc import Callable
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

# The Weibull shapes that are asked for: beyond, the gamma function leaves the floats.
_BURSTIEST, _STEADIEST = 0.1, 1000.0


class ArrivalProcess(Protocol):
    """Draws the gaps between arrivals."""

    @property
    def rate_per_s(self) -> float:
        """The mean rate in the long run."""

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` gaps in seconds."""


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
        shape = weibull_shape(self.cv)
        return rng.weibull(shape, count) / (self.rate_per_s * gamma(1 + 1 / shape))


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


def check_not_negative(name: str, value: float) -> None:
    """Raise TraceError unless the value is finite and at least 0."""
    if not (isfinite(value) and value >= 0):
        raise TraceError(f"the {name} must be 0 or positive, not {value:g}")


def check_positive(name: str, value: float) -> None:
    """Raise TraceError unless the value is finite and above 0."""
    if not (isfinite(value) and value > 0):
        raise TraceError(f"the {name} must be a positive number, not {value:g}")
