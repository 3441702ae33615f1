"""How long a run of equal steps takes, in ticks: in closed form where the model allows it."""

from bisect import bisect_left
from math import sqrt
from typing import Protocol

from policies.batch import BatchShape
from sim.step_time import LinearStepTime, StepNoise, StepTime
from sim.ticks import to_ticks

_UNIT_BITS = 16


class RunClock(Protocol):
    """Times one run of steps after the other."""

    def begin(self, shape: BatchShape, steps: int, index: int) -> int:
        """Ticks that ``steps`` steps take, the first of which is step ``index`` of the server."""

    def elapsed(self, steps: int) -> int:
        """Ticks from the beginning of the run to the end of its step number ``steps``."""

    def steps_by(self, ticks: int) -> int:
        """The number of the first step that ends at ``ticks`` or later."""


class AffineClock:
    """Step j lasts first + j * slope: the sum is a quadratic."""

    def __init__(self, model: LinearStepTime) -> None:
        self._affine = model.affine
        self._first = self._slope = 0

    def begin(self, shape: BatchShape, steps: int, index: int) -> int:
        """Ticks that ``steps`` steps take."""
        self._first, self._slope = first, slope = self._affine(shape)
        if steps == 1:
            return first << _UNIT_BITS
        return steps * first + (steps * (steps - 1) >> 1) * slope << _UNIT_BITS

    def elapsed(self, steps: int) -> int:
        """Ticks to the end of step number ``steps``."""
        return steps * self._first + (steps * (steps - 1) >> 1) * self._slope << _UNIT_BITS

    def steps_by(self, ticks: int) -> int:
        """The least k with elapsed(k) >= ticks."""
        first, slope = self._first, self._slope
        units = -(-ticks >> _UNIT_BITS)
        if not slope:
            return -(-units // first) if first else 1
        linear = 2 * first - slope  # slope k^2 + linear k = 2 units
        root = (sqrt(linear * linear + 8 * slope * units) - linear) / (2 * slope)
        steps = max(1, int(root))  # near the root, which is a float's
        past = steps * first + (steps * (steps - 1) >> 1) * slope - units
        while past < 0:
            past += first + steps * slope
            steps += 1
        while steps > 1 and past >= (last := first + (steps - 1) * slope):
            past -= last
            steps -= 1
        return steps


class NoisyAffineClock:
    """As ``AffineClock``, each step times its noise factor; sums of the factors are kept."""

    def __init__(self, model: LinearStepTime, noise: StepNoise) -> None:
        self._affine = model.affine
        self._noise = noise
        self._first = self._slope = self._index = self._steps = 0
        self._sums: list[int] = []
        self._weighted_sums: list[int] = []

    def begin(self, shape: BatchShape, steps: int, index: int) -> int:
        """Ticks that ``steps`` steps take from step ``index`` on."""
        first, self._slope = self._affine(shape)
        self._first = first - self._slope * index
        offset, self._sums, self._weighted_sums = self._noise.draw(index, steps)
        self._index, self._steps = index - offset, steps
        return self.elapsed(steps)

    def elapsed(self, steps: int) -> int:
        """Ticks to the end of step number ``steps``: the sum of (first + slope j) * factor_j."""
        start, end = self._index, self._index + steps
        factors = self._sums[end] - self._sums[start]
        return self._first * factors + self._slope * (
            self._weighted_sums[end] - self._weighted_sums[start]
        )

    def steps_by(self, ticks: int) -> int:
        """The least k with elapsed(k) >= ticks."""
        return bisect_left(range(1, self._steps + 1), ticks, key=self.elapsed) + 1


class SampledClock:
    """Any model: the durations of a run as an array, in ticks."""

    def __init__(self, model: StepTime, noise: StepNoise | None) -> None:
        self._model = model
        self._noise = noise
        self._ends: list[int] = []

    def begin(self, shape: BatchShape, steps: int, index: int) -> int:
        """Ticks that ``steps`` steps take from step ``index`` on."""
        durations_s = self._model.seconds(shape, steps)
        if self._noise is not None:
            durations_s = durations_s * self._noise.factors(index, steps)
        end = 0
        self._ends = [end := end + to_ticks(seconds) for seconds in durations_s.tolist()]
        return end

    def elapsed(self, steps: int) -> int:
        """Ticks to the end of step number ``steps``."""
        return self._ends[steps - 1]

    def steps_by(self, ticks: int) -> int:
        """The least k with elapsed(k) >= ticks."""
        return bisect_left(self._ends, ticks) + 1


def run_clock(model: StepTime, noise: StepNoise | None) -> RunClock:
    """The quickest clock that is exact for ``model``."""
    if not isinstance(model, LinearStepTime):
        return SampledClock(model, noise)
    if noise is None or noise.is_none():
        return AffineClock(model)
    return NoisyAffineClock(model, noise)
