"""Step times whose runs are arithmetic series piece by piece, as lines between measured knots are.

All durations are whole numbers of 2^-48 s, so a run of steps ends where the single steps do.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from policies.batch import BatchShape
from sim.step_times.step_time import UNIT_S, FloatArray


class Piece(NamedTuple):
    """``steps`` steps of ``first`` units, ``first + slope`` units, ... of 2^-48 s."""

    first: int
    slope: int
    steps: int


class PiecewiseStepTime(ABC):
    """A step-time model whose runs of steps have a closed form piece by piece."""

    @abstractmethod
    def piece(self, shape: BatchShape, step: int = 0) -> Piece:
        """Return the longest known piece that begins with repetition ``step`` of ``shape``."""

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the durations of ``steps`` repetitions, in seconds."""
        found, done = np.empty(steps), 0
        while done < steps:
            first, slope, holds = self.piece(shape, done)
            here = min(holds, steps - done)
            found[done : done + here] = (first + slope * np.arange(here)) * UNIT_S
            done += here
        return found
