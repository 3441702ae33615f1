"""The duration of a run of equal steps in ticks, in closed form if the model allows it."""

from bisect import bisect_left
from collections.abc import Sequence as Listed
from itertools import accumulate
from math import sqrt

import numpy as np

from servetwin.policies.batch import Batch, BatchShape, Totals
from servetwin.sim.step_times.piecewise import RunPieces
from servetwin.sim.step_times.protocol import GroupStepTime, PassUnits, SingleSteps
from servetwin.sim.step_times.step_time import (
    UNIT_BITS,
    UNIT_S,
    AffineStepTime,
    FloatArray,
    LinearStepTime,
    StepNoise,
    StepTime,
    shape_for,
)

_HALF_UNIT_BITS = UNIT_BITS - 1
# Units of 2^-48 s that a 64-bit integer holds: four and a half hours in one run.
_MOST_UNITS = 2.0**62


class RunClock:
    """Times runs of equal steps, one run after the other.

    ``totals`` are the sums of the batch, None where it has no chunks. No protocol: compiled, a call
    by a base class costs a third.
    """

    def begin(self, batch: Batch, totals: Totals | None, steps: int, index: int) -> int:
        """Return the ticks that ``steps`` steps take from step ``index`` of the server on."""
        raise NotImplementedError

    def boundary(self, ticks: int) -> tuple[int, int]:
        """Return (number, end in ticks) of the first step that ends at ``ticks`` or later."""
        raise NotImplementedError


class AffineClock(RunClock):
    """A clock of affine steps: step j lasts first + j * slope, so the sum is a quadratic."""

    def __init__(self, model: AffineStepTime) -> None:
        self._affine = model.affine
        self._shape_of = shape_for(model)
        self._linear = model if isinstance(model, LinearStepTime) else None
        self._decodes = model.decodes
        self._first = self._slope = 0

    def begin(self, batch: Batch, totals: Totals | None, steps: int, index: int) -> int:
        """Return the ticks that ``steps`` steps take."""
        group, swapped = batch.lockstep, batch.swapped_tokens
        if totals is None and group is not None and not swapped and group.rows == 1:
            decodes = group.size  # as ``affine``, without a shape
            first, slope = self._decodes[decodes]
            first += slope * (group.context_tokens + decodes)
            slope *= decodes
        elif totals is not None and (linear := self._linear) is not None and not batch.drafted:
            first, slope = linear.of_totals(totals, swapped)
        else:
            first, slope = self._affine(self._shape_of(batch))
        self._first, self._slope = first, slope
        if steps == 1:
            return first << UNIT_BITS
        return steps * (first + first + (steps - 1) * slope) << _HALF_UNIT_BITS

    def boundary(self, ticks: int) -> tuple[int, int]:
        """Return (k, end) of the first step k that ends at ``ticks`` or later."""
        steps, units = _first_past(self._first, self._slope, -(-ticks >> UNIT_BITS))
        return steps, units << UNIT_BITS


def _first_past(first: int, slope: int, units: int) -> tuple[int, int]:
    """Return (k, end) of the first step k of a series that ends at ``units`` or later."""
    if not slope:
        steps = max(1, -(-units // first)) if first else 1
        return steps, steps * first
    steps = -(-units // first) or 1 if first else 1  # near enough where it is small
    if steps > 50:
        linear = 2.0 * first - slope  # slope k^2 + linear k = 2 units
        divisor = linear + sqrt(max(0.0, linear * linear + 8.0 * slope * units))
        steps = int(4.0 * units / divisor) or 1 if divisor > 0 else 1
    past = steps * first + (steps * (steps - 1) >> 1) * slope - units
    while past < 0:
        past += first + steps * slope
        steps += 1
    while steps > 1 and past >= (last := first + (steps - 1) * slope):
        past -= last
        steps -= 1
    return steps, units + past


class PiecewiseClock(RunClock):
    """A clock of steps whose durations are one arithmetic series after the other."""

    def __init__(self, model: RunPieces) -> None:
        self._pieces_of, self._bits = model.run_pieces, model.unit_bits
        self._pieces: list[tuple[int, int, int]] = []

    def begin(self, batch: Batch, totals: Totals | None, steps: int, index: int) -> int:
        """Return the ticks that ``steps`` steps take."""
        self._pieces = self._pieces_of(batch, steps)
        units = 0
        for first, slope, here in self._pieces:
            units += here * first + (here * (here - 1) >> 1) * slope
        return units << self._bits

    def boundary(self, ticks: int) -> tuple[int, int]:
        """Return (k, end) of the first step k that ends at ``ticks`` or later."""
        units = -(-ticks >> self._bits)
        done = past = 0
        for first, slope, steps in self._pieces:
            whole = steps * first + (steps * (steps - 1) >> 1) * slope
            if past + whole >= units:
                steps, end = _first_past(first, slope, units - past)
                return done + steps, past + end << self._bits
            done += steps
            past += whole
        return done, past << self._bits


class NoisyAffineClock(RunClock):
    """An ``AffineClock`` whose steps are multiplied by noise, of which the sums are kept."""

    def __init__(self, model: AffineStepTime, noise: StepNoise) -> None:
        self._affine = model.affine
        self._shape_of = shape_for(model)
        self._noise = noise
        self._first = self._slope = self._index = self._steps = 0
        self._sums: list[int] = []
        self._weighted_sums: list[int] = []

    def begin(self, batch: Batch, totals: Totals | None, steps: int, index: int) -> int:
        """Return the ticks that ``steps`` steps take from step ``index`` on."""
        first, self._slope = self._affine(self._shape_of(batch))
        self._first = first - self._slope * index
        offset, self._sums, self._weighted_sums = self._noise.draw(index, steps)
        self._index, self._steps = index - offset, steps
        return self._elapsed(steps)

    def boundary(self, ticks: int) -> tuple[int, int]:
        """Return (k, end) of the first step k that ends at ``ticks`` or later."""
        steps = bisect_left(range(1, self._steps + 1), ticks, key=self._elapsed) + 1
        return steps, self._elapsed(min(steps, self._steps))

    def _elapsed(self, steps: int) -> int:
        """Return the ticks of ``steps`` steps: the sum of (first + slope j) * factor_j."""
        start, end = self._index, self._index + steps
        factors = self._sums[end] - self._sums[start]
        return self._first * factors + self._slope * (
            self._weighted_sums[end] - self._weighted_sums[start]
        )


class SampledClock(RunClock):
    """A clock for any model: an array of durations, each to the nearest 2^-48 s."""

    def __init__(self, model: StepTime, noise: StepNoise | None) -> None:
        self._model = model
        self._single = model if isinstance(model, SingleSteps) else None
        self._shape_of = shape_for(model)
        self._noise = noise
        self._ends: list[int] = []

    def begin(self, batch: Batch, totals: Totals | None, steps: int, index: int) -> int:
        """Return the ticks that ``steps`` steps take from step ``index`` on."""
        if steps == 1:  # as below, without arrays
            duration_s = self._step_s(batch, totals)
            if self._noise is not None:
                duration_s *= self._noise.factor(index)
            self._ends = [round(duration_s / UNIT_S)]
            return self._ends[0] << UNIT_BITS
        return self._keep(self._model.seconds(self._shape_of(batch), steps), index)

    def _keep(self, durations_s: FloatArray, index: int) -> int:
        """Keep when each step ends, with its noise; return the ticks of all."""
        if self._noise is not None:
            durations_s = durations_s * self._noise.factors(index, len(durations_s))
        units = np.rint(durations_s / UNIT_S)
        if np.add.reduce(units) < _MOST_UNITS:
            self._ends = np.cumsum(units.astype(np.int64)).tolist()
        else:
            self._ends = list(accumulate(map(int, units.tolist())))
        return self._ends[-1] << UNIT_BITS

    def _step_s(self, batch: Batch, totals: Totals | None) -> float:
        """Return the duration of one step of a batch without noise."""
        if self._single is not None and not batch.drafted:
            return self._single.step_s(totals or batch.totals(), batch.swapped_tokens)
        return float(self._model.seconds(self._shape_of(batch))[0])

    def boundary(self, ticks: int) -> tuple[int, int]:
        """Return (k, end) of the first step k that ends at ``ticks`` or later."""
        units = -(-ticks >> UNIT_BITS)
        place = min(bisect_left(self._ends, units), len(self._ends) - 1)
        return place + 1, self._ends[place] << UNIT_BITS


# The batch of a rank without work.
IDLE = BatchShape(0, 0, 0)


class GroupClock(SampledClock):
    """A clock of ranks that step together.

    Ranks of a model that knows no shared experts (``GroupStepTime``) wait for the slowest.
    """

    def begin_all(self, batches: Listed[Batch | None], steps: int, index: int) -> int:
        """Return the ticks that ``steps`` steps of the batches of all ranks take."""
        shapes = [IDLE if batch is None else self._shape_of(batch) for batch in batches]
        if isinstance(self._model, GroupStepTime):
            return self._keep(self._model.group_seconds(shapes, steps), index)
        alone_s = [self._model.seconds(shape, steps) for shape in shapes if shape is not IDLE]
        return self._keep(np.max(alone_s, axis=0), index)


class PassClock(RunClock):
    """A clock of passes that verify drafts, each of a length of its own; ``others`` times the rest.

    What comes out of the passes is known (``policies.drafted_decodes``), so a run of them is a sum.
    """

    def __init__(self, others: RunClock, model: PassUnits) -> None:
        self._others = others
        self._units_of, self._bits = model.pass_units, model.unit_bits
        self._units: list[int] = []

    def begin(self, batch: Batch, totals: Totals | None, steps: int, index: int) -> int:
        """Return the ticks that ``steps`` steps take."""
        if not batch.drafted:
            self._units = []
            return self._others.begin(batch, totals, steps, index)
        self._units = self._units_of(batch, steps)
        return sum(self._units) << self._bits

    def boundary(self, ticks: int) -> tuple[int, int]:
        """Return (k, end) of the first step k that ends at ``ticks`` or later."""
        if not self._units:
            return self._others.boundary(ticks)
        ends = list(accumulate(self._units))
        place = min(bisect_left(ends, -(-ticks >> self._bits)), len(ends) - 1)
        return place + 1, ends[place] << self._bits


class SlowedClock(RunClock):
    """A clock whose steps may take longer, by a factor that is a multiple of 2^-16."""

    def __init__(self, others: RunClock) -> None:
        self._others = others
        self._next = self._factor = 1 << UNIT_BITS
        self._index = -1

    def set_factor(self, factor: float) -> None:
        """Set the factor of the runs that begin from now on."""
        self._next = max(1, round(factor * (1 << UNIT_BITS)))

    def begin(self, batch: Batch, totals: Totals | None, steps: int, index: int) -> int:
        """Return the ticks of ``steps`` steps; a run that is begun again keeps its factor."""
        if index != self._index:
            self._factor, self._index = self._next, index
        return self._others.begin(batch, totals, steps, index) * self._factor >> UNIT_BITS

    def boundary(self, ticks: int) -> tuple[int, int]:
        """Return (k, end) of the first step k that ends at ``ticks`` or later."""
        steps, end = self._others.boundary(-(-(ticks << UNIT_BITS) // self._factor))
        return steps, end * self._factor >> UNIT_BITS


def run_clock(model: StepTime, noise: StepNoise | None, *, drafts: bool = False) -> RunClock:
    """Return the fastest clock that is exact for ``model``, with ``drafts`` for passes too."""
    if noise is not None and noise.is_none():
        noise = None
    if drafts and noise is None and isinstance(model, PassUnits):
        return PassClock(run_clock(model, None), model)
    if noise is None and isinstance(model, RunPieces):
        return PiecewiseClock(model)
    if not isinstance(model, AffineStepTime):
        return SampledClock(model, noise)
    return AffineClock(model) if noise is None else NoisyAffineClock(model, noise)
