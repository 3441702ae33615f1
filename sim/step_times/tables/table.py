"""The base of tables of measured times: their parts, ranges and errors."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.origin import Origin
from servetwin.sim.step_times.step_time import FloatArray, StepTime
from servetwin.sim.step_times.tables.held_out import HeldOutError, held_out_error
from servetwin.sim.step_times.tables.interpolate import LEVELS, Interpolated, LevelArray

Numbers = npt.ArrayLike


class TablePart(NamedTuple):
    """One interpolated quantity of a table, and what its axes count.

    A ``minor`` part is too short for its error to matter: often a few ticks of the clock.
    """

    axes: tuple[str, ...]
    times: Interpolated
    minor: bool = False


class StepColumns(NamedTuple):
    """Many steps: each has ``decodes`` with that ``context`` in all, and ``chunks`` of prompts.

    A chunk has ``chunk_rows`` rows from position ``chunk_start`` on.
    """

    decodes: FloatArray
    context: FloatArray
    chunks: FloatArray
    chunk_rows: FloatArray
    chunk_start: FloatArray


@dataclass(frozen=True, slots=True)
class ScaledTable:
    """A step-time model, ``factor`` times as slow."""

    table: StepTime
    factor: float

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the seconds of ``steps`` repetitions."""
        return self.factor * self.table.seconds(shape, steps)


class Table(ABC):
    """A step-time model that interpolates measured times (a ``StepTime``)."""

    parts: dict[str, TablePart]
    origin: Origin = "measured by others"

    @abstractmethod
    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the seconds of ``steps`` repetitions, each with the growing decodes one longer."""

    def scaled(self, factor: float) -> StepTime:
        """Return a model that takes ``factor`` times as long."""
        return ScaledTable(self, factor)

    def row_origins(self, steps: pd.DataFrame) -> dict[Origin, FloatArray]:
        """Return the share of the time of each row of ``Run.steps``, by origin."""
        return {self.origin: np.ones(len(steps))}

    def provenance(
        self,
        decodes: Numbers,
        decode_context_tokens: Numbers,
        chunks: Numbers = 0,
        chunk_rows: Numbers = 0,
        chunk_start: Numbers = 0,
    ) -> npt.NDArray[np.str_]:
        """Return where the durations of many steps (``StepColumns``) come from.

        A step is as sure as the least sure of its parts.
        """
        given = (decodes, decode_context_tokens, chunks, chunk_rows, chunk_start)
        arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(x, np.float64)) for x in given))
        return np.array(LEVELS)[self._levels(StepColumns(*arrays))]

    @abstractmethod
    def _levels(self, steps: StepColumns) -> LevelArray:
        """Return the place of each step in ``LEVELS``."""

    @property
    def ranges(self) -> dict[str, dict[str, tuple[float, float]]]:
        """(smallest, largest) measured along every axis of every part."""
        return {
            name: {
                axis: (float(values.min()), float(values.max()))
                for axis, values in zip(part.axes, part.times.coordinates, strict=True)
            }
            for name, part in self.parts.items()
        }

    def held_out_errors(self, seed: int = 0) -> dict[str, HeldOutError | None]:
        """Return for every part how well a random half of its points predicts the others."""
        return {name: held_out_error(part.times, seed) for name, part in self.parts.items()}

    def log_deviation(self) -> float:
        """Return that of a factor on all times: the worst held-out error of a major part."""
        errors = self.held_out_errors()
        major = [error for name, error in errors.items() if not self.parts[name].minor]
        return max((error.log_deviation() for error in major if error), default=0.0)

    def summary(self, seed: int = 0) -> list[str]:
        """Return a line per part: its points, its ranges, its held-out error."""
        errors = self.held_out_errors(seed)
        return [
            f"{name}: {len(part.times.times_s)} points, {_spans(self.ranges[name])}; held-out "
            f"error {errors[name] or 'unknown (too few points)'}"
            for name, part in self.parts.items()
        ]


def worst(*levels: LevelArray) -> LevelArray:
    """Return the least sure of several levels."""
    most: LevelArray = np.maximum.reduce(levels)
    return most


def _spans(ranges: dict[str, tuple[float, float]]) -> str:
    return ", ".join(f"{axis} {low:,.0f} to {high:,.0f}" for axis, (low, high) in ranges.items())
