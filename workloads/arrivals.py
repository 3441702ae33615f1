"""Arrival processes: how a generator spaces its requests. The first one arrives at 0."""

from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.errors import TraceError

FloatArray = NDArray[np.float64]


class ArrivalProcess(Protocol):
    """Draws the gaps between arrivals."""

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """``count`` gaps in seconds."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantArrivals:
    """One request every 1 / rate seconds."""

    rate_per_s: float

    def __post_init__(self) -> None:
        check_positive("rate", self.rate_per_s)

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """``count`` equal gaps in seconds."""
        return np.full(count, 1 / self.rate_per_s)


@dataclass(frozen=True, slots=True)
class PoissonArrivals:
    """Independent clients: exponential gaps, coefficient of variation 1."""

    rate_per_s: float

    def __post_init__(self) -> None:
        check_positive("rate", self.rate_per_s)

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """``count`` exponential gaps in seconds."""
        return rng.exponential(1 / self.rate_per_s, count)


@dataclass(frozen=True, slots=True)
class GammaArrivals:
    """Gamma gaps of shape 1 / cv^2: burstier than Poisson above cv 1, steadier below."""

    rate_per_s: float
    cv: float

    def __post_init__(self) -> None:
        check_positive("rate", self.rate_per_s)
        check_positive("cv of the arrivals", self.cv)

    def gaps_s(self, count: int, rng: np.random.Generator) -> FloatArray:
        """``count`` gamma gaps in seconds."""
        return rng.gamma(self.cv**-2, self.cv**2 / self.rate_per_s, count)


def check_positive(name: str, value: float) -> None:
    """Raise TraceError unless the value is finite and above 0."""
    if not (isfinite(value) and value > 0):
        raise TraceError(f"the {name} must be a positive number, not {value:g}")
