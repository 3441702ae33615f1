"""Compare what replications measured with the exact value, inside a confidence interval."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from sim.theory.selftest.scenario import Scenario

CONFIDENCE = 0.999
IDENTITY_PRECISION = 1e-9
SEED = 20_231


@dataclass(frozen=True, slots=True)
class Outcome:
    """One figure of a scenario; ``half_width`` is that of the two-sided 99.9 % interval."""

    scenario: str
    figure: str
    exact: float
    measured: float
    half_width: float
    precision: float

    @property
    def is_precise(self) -> bool:
        """Whether the interval is narrow enough to mean anything."""
        return self.half_width <= self.precision * self.exact

    @property
    def holds(self) -> bool:
        """Whether the exact value lies in a narrow interval around the measured one."""
        margin = max(self.half_width, IDENTITY_PRECISION * self.exact)
        return self.is_precise and abs(self.measured - self.exact) <= margin

    @property
    def verdict(self) -> str:
        """In words."""
        if self.holds:
            return "holds"
        return "FAILED" if self.is_precise else "too wide"

    def as_dict(self) -> dict[str, Any]:
        """The outcome by name, for JSON."""
        return {**asdict(self), "holds": self.holds}


def judge(scenario: Scenario, seed: int = SEED) -> Iterator[Outcome]:
    """Run a scenario's replications and compare each of its figures with the exact value.

    Replication r of every scenario draws from the same child of ``seed``, so that settings which
    differ in one thing meet the same requests.
    """
    streams = np.random.SeedSequence(seed).spawn(scenario.replications)
    measured = [scenario.measure(np.random.default_rng(stream)) for stream in streams]
    for figure, exact in scenario.exact.items():
        values = np.array([replication[figure] for replication in measured])
        yield Outcome(
            scenario.name,
            figure,
            exact,
            float(values.mean()),
            half_width(values),
            scenario.precision,
        )


def half_width(values: npt.NDArray[np.float64]) -> float:
    """Of the interval of the mean, by Student's t; 0 for a single value, which is no sample."""
    count = len(values)
    if count == 1:
        return 0.0
    quantile = float(student.ppf((1 + CONFIDENCE) / 2, count - 1))
    return quantile * float(values.std(ddof=1)) / sqrt(count)
