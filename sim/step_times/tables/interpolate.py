"""Times between the points of a table, and beyond them.

Between two points the time stays between theirs (monotone cubics, Fritsch & Carlson 1980), so it
rises where the table rises. Below the first point it is that of the first. Above the last it goes
on in a straight line, by the slope over the last octave: on a grid of doublings that is the last
segment, on a dense grid it does not follow the noise of the last two points. It never falls there.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from servetwin.sim.step_times.provenance import Provenance
from servetwin.sim.step_times.step_time import FloatArray

# From the surest to the least sure; a level is a place in this tuple.
LEVELS: tuple[Provenance, ...] = ("measured", "interpolated", "extrapolated")

Places = npt.NDArray[np.int64]
LevelArray = npt.NDArray[np.int8]
_LEAST_S = 1e-9


class Interpolated(ABC):
    """Times between measured points; ``coordinates`` are their places, an array for each axis."""

    coordinates: tuple[FloatArray, ...]
    times_s: FloatArray

    @abstractmethod
    def __call__(self, *places: Any, **by_name: Any) -> FloatArray:
        """Return the seconds at places, an array for each axis."""

    @abstractmethod
    def thinned(self, places: Places) -> "Interpolated":
        """Return the table through some of the points only."""


class Curve(Interpolated):
    """Seconds along one axis. ``x`` are distinct; ``times_s`` their times (at least 1 ns).

    A ``straight`` one joins its points by lines instead of monotone cubics.
    """

    def __init__(self, x: FloatArray, times_s: FloatArray, *, straight: bool = False) -> None:
        order = np.argsort(x)
        self.x = np.asarray(x, dtype=np.float64)[order]
        self.times_s = np.maximum(np.asarray(times_s, dtype=np.float64)[order], _LEAST_S)
        self.low, self.high = float(self.x[0]), float(self.x[-1])
        self._straight = straight
        join = _lines if straight else _monotone_cubic
        self._between = join(self.x, self.times_s)
        self._slope = self._last_slope()
        self.coordinates = (self.x,)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return the seconds at ``x``."""
        within = np.minimum(np.maximum(x, self.low), self.high)
        beyond = np.maximum(x - self.high, 0.0)
        times_s: FloatArray = self._between(within) + self._slope * beyond
        return times_s

    def thinned(self, places: Places) -> "Curve":
        """Return the table through some of the points only."""
        return Curve(self.x[places], self.times_s[places], straight=self._straight)

    def levels(self, x: FloatArray) -> LevelArray:
        """Return how sure each time is, as places in ``LEVELS``."""
        inside = (x >= self.low) & (x <= self.high)
        return as_levels(np.isin(x, self.x), inside)

    def _last_slope(self) -> float:
        start = max(self.low, self.high / 2)
        if start == self.high:
            return 0.0
        rise_s = self.times_s[-1] - float(self._between(start))
        return max(0.0, float(rise_s) / (self.high - start))


class Surface(Interpolated):
    """Seconds over two axes; the second may have other points at each value of the first.

    At each ``u`` the times over ``v`` are a ``Curve``. Between two of them a time is the geometric
    mean, weighted by log u: exact for powers of u, and within 2 % of a straight line on doublings.
    Where a single ``v`` was measured, times change over ``v`` as at the nearest ``u`` with more.
    """

    def __init__(self, u: FloatArray, v: FloatArray, times_s: FloatArray) -> None:
        self.coordinates = (np.asarray(u, dtype=np.float64), np.asarray(v, dtype=np.float64))
        self.times_s = np.maximum(np.asarray(times_s, dtype=np.float64), _LEAST_S)
        self.u = np.unique(self.coordinates[0])
        measured = [self._measured(value) for value in self.u]
        self._lows = np.array([curve.low for curve in measured])
        self._highs = np.array([curve.high for curve in measured])
        self._curves = _completed(self.u, measured)
        self._sections: dict[float, Curve] = {}

    def __call__(self, u: FloatArray, v: FloatArray) -> FloatArray:
        """Return the seconds at each (u, v)."""
        times_s = np.empty(len(u))
        for value in np.unique(u):
            here = u == value
            times_s[here] = self.section(float(value))(v[here])
        return times_s

    def section(self, u: float) -> Curve:
        """Return the curve over ``v`` at ``u``; it is kept for the next call."""
        section = self._sections.get(u)
        if section is None:
            section = self._sections[u] = self._section(u)
        return section

    def thinned(self, places: Places) -> "Surface":
        """Return the table through some of the points only."""
        u, v = self.coordinates
        return Surface(u[places], v[places], self.times_s[places])

    def levels(self, u: FloatArray, v: FloatArray) -> LevelArray:
        """Return how sure each time is; inside, both neighbours in ``u`` were measured."""
        above = np.minimum(np.searchsorted(self.u, u), len(self.u) - 1)
        below = np.where(self.u[above] == u, above, np.maximum(above - 1, 0))
        inside = (u >= self.u[0]) & (u <= self.u[-1])
        inside &= (v >= np.maximum(self._lows[below], self._lows[above])) & (
            v <= np.minimum(self._highs[below], self._highs[above])
        )
        points_u, points_v = self.coordinates
        return as_levels(np.isin(u + 1j * v, points_u + 1j * points_v), inside)

    def _measured(self, u: float) -> Curve:
        here = self.coordinates[0] == u
        return Curve(self.coordinates[1][here], self.times_s[here])

    def _section(self, u: float) -> Curve:
        if u > self.u[-1]:
            return self._beyond(u)
        above = int(np.searchsorted(self.u, u))
        if above == 0 or self.u[above] == u:
            return self._curves[above]
        low, high = self._curves[above - 1], self._curves[above]
        v = np.union1d(low.x, high.x)
        weight = np.log(u / self.u[above - 1]) / np.log(self.u[above] / self.u[above - 1])
        return Curve(v, low(v) ** (1 - weight) * high(v) ** weight)

    def _beyond(self, u: float) -> Curve:
        last = float(self.u[-1])
        start = max(float(self.u[0]), last / 2)
        low, high = self.section(start), self._curves[-1]
        v = np.union1d(low.x, high.x)
        if start == last:
            return high
        slope = np.maximum(0.0, (high(v) - low(v)) / (last - start))
        return Curve(v, high(v) + slope * (u - last))


def _lines(x: FloatArray, times_s: FloatArray) -> Any:
    return partial(np.interp, xp=x, fp=times_s)


def _monotone_cubic(x: FloatArray, times_s: FloatArray) -> Any:
    from scipy.interpolate import PchipInterpolator

    if len(x) == 1:
        x, times_s = np.array([x[0], x[0] + 1]), np.repeat(times_s, 2)
    return PchipInterpolator(x, times_s)


def _completed(u: FloatArray, curves: list[Curve]) -> list[Curve]:
    """Give curves of one point the changes of the nearest curve with more."""
    several = [place for place, curve in enumerate(curves) if len(curve.x) > 1]
    if not several:
        return curves
    nearest = [min(several, key=lambda other: abs(u[other] - value)) for value in u]
    return [
        curve if len(curve.x) > 1 else _shifted(curves[other], curve)
        for curve, other in zip(curves, nearest, strict=True)
    ]


def _shifted(curve: Curve, through: Curve) -> Curve:
    v = np.union1d(curve.x, through.x)
    return Curve(v, through.times_s[0] + curve(v) - curve(through.x))


def as_levels(measured: npt.NDArray[np.bool_], inside: npt.NDArray[np.bool_]) -> LevelArray:
    """Return the place in ``LEVELS`` of each time."""
    return np.where(measured, 0, np.where(inside, 1, 2)).astype(np.int8)


_FEWEST_POINTS = 4
# Median of |z| of a standard normal z.
_MEDIAN_OF_NORMAL = 0.6745


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
    fitted, held_out = halves(len(table.times_s), seed)
    predicted_s = table.thinned(fitted)(*(axis[held_out] for axis in table.coordinates))
    return HeldOutError.of(predicted_s, table.times_s[held_out])
