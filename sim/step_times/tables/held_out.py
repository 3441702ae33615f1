"""How well one random half of a table predicts the other.

The first and last points fall into either half, so the error includes some extrapolation: it is
rather too large than too small for what lies between the points of the whole table.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables.interpolate import Interpolated, Places

_FEWEST_POINTS = 4
_MEDIAN_OF_NORMAL = 0.6745
"""Median of |z| of a standard normal z."""


@dataclass(frozen=True, slots=True)
class HeldOutError:
    """Absolute relative errors on the ``points`` that a fit to the others had not seen.

    ``of_sum`` is the relative error of the sum of their times, in which errors of both signs
    cancel.
    """

    median: float
    p90: float
    points: int
    of_sum: float = 0.0

    @classmethod
    def of(cls, predicted_s: FloatArray, measured_s: FloatArray) -> "HeldOutError":
        """Return the error of predictions of measured times."""
        errors = np.abs(predicted_s / measured_s - 1)
        median, p90 = np.quantile(errors, (0.5, 0.9)).tolist()
        of_sum = float(predicted_s.sum() / measured_s.sum() - 1)
        return cls(median, p90, len(errors), of_sum)

    def __str__(self) -> str:
        return f"{self.median:.1%} (median), {self.p90:.1%} (p90) on {self.points} unseen points"

    def log_deviation(self) -> float:
        """Return the standard deviation of a lognormal factor with this median error."""
        return self.median / _MEDIAN_OF_NORMAL


def halves(points: int, seed: int) -> tuple[Places, Places]:
    """Return the places of a random half of the points, and those of the others."""
    order = np.random.default_rng(seed).permutation(points)
    return np.sort(order[: (points + 1) // 2]), np.sort(order[(points + 1) // 2 :])


@lru_cache(maxsize=32)  # a report and an interval ask for the same, and a large grid takes seconds
def held_out_error(table: Interpolated, seed: int = 0) -> HeldOutError | None:
    """Interpolate one half of the points and predict the other; None for fewer than 4 points."""
    if len(table.times_s) < _FEWEST_POINTS:
        return None
    seen, unseen = halves(len(table.times_s), seed)
    predicted_s = table.thinned(seen)(*(axis[unseen] for axis in table.coordinates))
    return HeldOutError.of(predicted_s, table.times_s[unseen])
