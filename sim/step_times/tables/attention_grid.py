"""Times of attention over four axes: prompt rows, their context, decodes, their context."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables.interpolate import Interpolated, LevelArray, Places, as_levels

AXES = ("chunk rows", "chunk start", "decodes", "context")
_ROWS, _START, _DECODES, _CONTEXT = range(4)
# In this order places without a measurement are filled: time is smoothest along a context.
_FILLED_ALONG = (_CONTEXT, _START, _DECODES, _ROWS)


class AttentionGrid(Interpolated):
    """Seconds of one layer's attention in a step of chunks and decodes.

    ``coordinates`` are the four ``AXES`` of every point: rows of one prompt's chunk, positions
    before it, decodes, and the context that each decode finds, its own position not counted. A
    step without rows has start 0 in ``coordinates``; one without decodes has context 0.

    Between points time is linear along each axis; beyond the last one it goes on in a straight
    line and never falls. Measurements need not fill the grid: a place between two points of an axis
    is filled from them, one outside of them as beyond the last point.
    """

    def __init__(self, coordinates: tuple[FloatArray, ...], times_s: FloatArray) -> None:
        self.coordinates = coordinates
        self.times_s = times_s
        self.axes = tuple(np.unique([0.0, *axis]) for axis in coordinates)
        grid = np.full([len(axis) for axis in self.axes], np.nan)
        grid[self._places(coordinates)] = times_s
        self.grid = _completed(grid, self.axes)

    def __call__(
        self, rows: FloatArray, start: FloatArray, decodes: FloatArray, context: FloatArray
    ) -> FloatArray:
        """Return the seconds at each place."""
        times_s = [
            self.at_context(self.of_chunk(self.at_decodes(n), r, s), kd)
            for r, s, n, kd in zip(rows, start, decodes, context, strict=True)
        ]
        return np.array(times_s)

    def at_decodes(self, decodes: float) -> FloatArray:
        """Return the seconds [rows, start, context] for a number of decodes."""
        return _between(self.axes[_DECODES], decodes, lambda place: self.grid[:, :, place])

    def of_chunk(self, at_decodes: FloatArray, rows: float, start: float) -> FloatArray:
        """Return the seconds at every context beside a chunk, from those of ``at_decodes``."""
        return _between(
            self.axes[_ROWS],
            rows,
            lambda row: _between(self.axes[_START], start, lambda place: at_decodes[row, place]),
        )

    def at_context(self, times_s: FloatArray, context: float) -> float:
        """Return the seconds at a context, from those of ``of_chunk``."""
        return float(np.interp(context, *_line(self.axes[_CONTEXT], times_s)))

    def thinned(self, places: Places) -> "AttentionGrid":
        """Return the grid through some of the points only."""
        return AttentionGrid(tuple(axis[places] for axis in self.coordinates), self.times_s[places])

    def levels(self, *places: FloatArray) -> LevelArray:
        """Return how sure each time is: measured at all four values, inside, or beyond them."""
        known = np.logical_and.reduce(
            [np.isin(value, axis) for value, axis in zip(places, self.axes, strict=True)]
        )
        inside = np.logical_and.reduce(
            [value <= axis[-1] for value, axis in zip(places, self.axes, strict=True)]
        )
        return as_levels(known, inside)

    def _places(self, coordinates: tuple[FloatArray, ...]) -> tuple[npt.NDArray[np.intp], ...]:
        return tuple(
            np.searchsorted(axis, values)
            for axis, values in zip(self.axes, coordinates, strict=True)
        )


def _between(axis: FloatArray, value: float, times_s: Callable[[int], FloatArray]) -> FloatArray:
    """Return the times at ``value``, linear between its neighbours and beyond the last two."""
    if len(axis) == 1:
        return times_s(0)
    above = min(max(int(np.searchsorted(axis, value)), 1), len(axis) - 1)
    low, high = float(axis[above - 1]), float(axis[above])
    weight = (value - low) / (high - low)
    below_s, above_s = times_s(above - 1), times_s(above)
    if weight > 1:
        return above_s + (weight - 1) * np.maximum(0.0, above_s - below_s)
    return (1 - weight) * below_s + weight * above_s


def _line(axis: FloatArray, times_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the line through the points, with one far beyond the last."""
    if len(axis) == 1:
        return axis, times_s
    slope = max(0.0, float(times_s[-1] - times_s[-2]) / float(axis[-1] - axis[-2]))
    far = 1e9
    return np.append(axis, axis[-1] + far), np.append(times_s, times_s[-1] + slope * far)


def _completed(grid: FloatArray, axes: tuple[FloatArray, ...]) -> FloatArray:
    """Fill the places without a measurement.

    What an axis cannot change there is copied: the context of no decodes, the start of no chunk.
    """
    grid[0, :, 0, :] = 0.0
    grid[:, :, 0, 1:] = grid[:, :, 0, :1]
    grid[0, 1:] = grid[0, :1]
    for _ in range(2):  # once more, for places that only then have two neighbours
        for place in _FILLED_ALONG:
            grid = _along(grid, place, axes[place], _fill_between)
    for place in _FILLED_ALONG:
        grid = _along(grid, place, axes[place], _fill_outside)
    return grid


def _along(
    grid: FloatArray,
    place: int,
    axis: FloatArray,
    fill: Callable[[FloatArray, FloatArray, npt.NDArray[np.intp]], None],
) -> FloatArray:
    """Apply ``fill`` to every line along an axis that has both measured places and others."""
    turned = np.ascontiguousarray(np.moveaxis(grid, place, -1))
    lines = turned.reshape(-1, len(axis))
    known = ~np.isnan(lines)
    for number in np.flatnonzero(known.any(axis=1) & ~known.all(axis=1)):
        fill(lines[number], axis, np.flatnonzero(known[number]))
    return np.moveaxis(turned, -1, place)


def _fill_between(line: FloatArray, axis: FloatArray, known: npt.NDArray[np.intp]) -> None:
    first, last = known[0], known[-1]
    line[first:last] = np.interp(axis[first:last], axis[known], line[known])


def _fill_outside(line: FloatArray, axis: FloatArray, known: npt.NDArray[np.intp]) -> None:
    first, last = known[0], known[-1]
    line[:first] = line[first]
    slope = 0.0
    if len(known) > 1:
        before = known[-2]
        slope = max(0.0, (line[last] - line[before]) / (axis[last] - axis[before]))
    line[last:] = line[last] + slope * (axis[last:] - axis[last])
