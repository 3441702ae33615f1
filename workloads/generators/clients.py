"""Many clients, few of them large, each with its own burstiness."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from workloads.errors import TraceError
from workloads.generators.arrivals import (
    FloatArray,
    GammaArrivals,
    arrivals_within,
    check_not_negative,
    check_positive,
)

_Z90 = 1.2815515655446004
"""The 90 % point of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class ClientArrivals:
    """``clients`` independent gamma processes: client k's rate is proportional to k^-skew.

    Their CVs are lognormal, by median and 90 % point. The defaults are those of the ServeGen
    clients of public models: rates fall with a slope of -1.05 to -1.8.
    """

    rate_per_s: float
    clients: int = 50
    skew: float = 1.3
    cv_median: float = 1.2
    cv_p90: float = 5.0

    def __post_init__(self) -> None:
        check_positive("rate", self.rate_per_s)
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
