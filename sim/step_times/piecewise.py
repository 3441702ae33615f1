"""Step times whose runs are arithmetic series piece by piece, as lines between measured knots are.

All durations are whole numbers of 2^-48 s, so a run of steps ends where the single steps do.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np

from servetwin.policies.batch import Batch, BatchShape
from servetwin.sim.step_times.step_time import UNIT_BITS, UNIT_S, FloatArray, shape_for, to_units
from servetwin.workloads.native_class import mypyc_attr


class Piece(NamedTuple):
    """``steps`` steps of ``first`` units, ``first + slope`` units, ... of 2^-48 s."""

    first: int
    slope: int
    steps: int


# More steps than any run has.
NEVER = 1 << 62


class Line(NamedTuple):
    """Units by context, a line between neighbouring knots, as whole numbers.

    ``knots`` and the context are sums over all decodes, their own positions included.
    """

    knots: tuple[int, ...]
    bases: tuple[int, ...]
    slopes: tuple[int, ...]

    @classmethod
    def of(cls, contexts: FloatArray, seconds: FloatArray, decodes: int) -> "Line":
        """Return the line through ``seconds`` at the mean ``contexts`` that decodes find."""
        knots = tuple(decodes * (int(context) + 1) for context in contexts)
        slopes = [
            to_units((s1 - s0) / (x1 - x0))
            for (x0, x1), (s0, s1) in zip(pairwise(knots), pairwise(seconds.tolist()), strict=True)
        ]
        slopes = [*slopes, max(0, slopes[-1]) if slopes else 0]
        bases = [to_units(float(seconds[0]))]
        for (x0, x1), slope in zip(pairwise(knots), slopes, strict=False):
            bases.append(bases[-1] + slope * (x1 - x0))
        return cls(knots, tuple(bases), tuple(slopes))

    def piece(self, context: int, growing: int) -> tuple[int, int, int]:
        """Return the ``Piece`` from ``context`` on, until it grows past the next knot."""
        knots = self.knots
        above = bisect_right(knots, context)
        place = max(0, above - 1)
        slope = self.slopes[place]
        first = self.bases[place] + slope * (context - knots[place])
        if not growing or above >= len(knots):
            return first, slope * growing, NEVER
        return first, slope * growing, (knots[above] - context) // growing + 1


@mypyc_attr(allow_interpreted_subclasses=True)
class RunPieces(ABC):
    """A step-time model whose runs of steps have a closed form piece by piece.

    Its units are ``unit_bits`` longer than a tick: 2^-48 s by default.
    """

    unit_bits: ClassVar[int] = UNIT_BITS

    @abstractmethod
    def run_pieces(self, batch: Batch, steps: int) -> list[tuple[int, int, int]]:
        """Return the ``Piece``s of ``steps`` repetitions of a batch, as plain tuples."""

    @abstractmethod
    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the durations of ``steps`` repetitions, in seconds."""


@mypyc_attr(allow_interpreted_subclasses=True)
class PiecewiseStepTime(RunPieces):
    """A model that knows the pieces of a run from the shape of the batch."""

    @abstractmethod
    def piece(self, shape: BatchShape, step: int = 0) -> Piece:
        """Return the longest known piece that begins with repetition ``step`` of ``shape``."""

    def run_pieces(self, batch: Batch, steps: int) -> list[tuple[int, int, int]]:
        """Return the pieces of ``steps`` repetitions of a batch."""
        return pieces_of(self.piece, shape_for(self)(batch), steps)

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the durations of ``steps`` repetitions, in seconds."""
        return durations_s(pieces_of(self.piece, shape, steps))


def pieces_of(
    piece: Callable[[BatchShape, int], Piece], shape: BatchShape, steps: int
) -> list[tuple[int, int, int]]:
    """Return the pieces of ``steps`` repetitions of a shape, one after the other."""
    pieces, done = [], 0
    while done < steps:
        first, slope, holds = piece(shape, done)
        here = min(holds, steps - done)
        pieces.append((first, slope, here))
        done += here
    return pieces


def durations_s(pieces: Iterable[tuple[int, int, int]]) -> FloatArray:
    """Return the duration of each step of some pieces, in seconds."""
    return np.concatenate([(first + slope * np.arange(n)) * UNIT_S for first, slope, n in pieces])
