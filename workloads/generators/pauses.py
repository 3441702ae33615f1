"""Pause distributions: how long a client thinks, or a tool works, after an answer."""

from dataclasses import dataclass
from math import isfinite, log
from typing import Protocol

import numpy as np

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import FloatArray, check_positive, describe


class PauseDistribution(Protocol):
    """Draws pauses."""

    def sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` pauses in seconds."""


@dataclass(frozen=True, slots=True)
class ExponentialPause:
    """Memoryless thinking, as in the models of closed queueing networks."""

    mean_s: float

    def __post_init__(self) -> None:
        check_positive("mean think time", self.mean_s)

    def sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` exponential pauses in seconds."""
        return rng.exponential(self.mean_s, count)

    def describe(self) -> str:
        """Return the mean."""
        return f"exponential, mean {self.mean_s:g} s"


@dataclass(frozen=True, slots=True)
class LognormalPause:
    """exp(N(ln median, sigma^2)) seconds: people who mostly answer soon and sometimes leave.

    The defaults are those of chats: 90 % within some 820 s.
    """

    median_s: float = 120.0
    sigma: float = 1.5

    def __post_init__(self) -> None:
        check_positive("median think time", self.median_s)
        if not (isfinite(self.sigma) and self.sigma >= 0):
            raise TraceError(f"the sigma of think times must be >= 0, not {self.sigma:g}")

    def sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` lognormal pauses in seconds."""
        return rng.lognormal(log(self.median_s), self.sigma, count)

    def describe(self) -> str:
        """Return the median and sigma."""
        if not self.sigma:
            return f"always {self.median_s:g} s"
        return f"log-normal, median {self.median_s:g} s, sigma {self.sigma:.3g}"


@dataclass(frozen=True, slots=True)
class MixedPause:
    """A ``second_share`` of the pauses by the second distribution, the others by the first."""

    first: PauseDistribution
    second: PauseDistribution
    second_share: float

    def __post_init__(self) -> None:
        if not 0 <= self.second_share <= 1:
            raise TraceError(f"a share must be 0 to 1, not {self.second_share:g}")

    def sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` pauses in seconds, each distribution from its own random stream."""
        choice_rng, first_rng, second_rng = rng.spawn(3)
        second = choice_rng.random(count) < self.second_share
        firsts_s = self.first.sample(count, first_rng)
        seconds_s = self.second.sample(count, second_rng)
        return np.where(second, seconds_s, firsts_s)

    def describe(self) -> str:
        """Return both, and the share of the second."""
        share = f"{100 * self.second_share:.3g} %"
        return f"{describe(self.first)}, but {share} of them {describe(self.second)}"
