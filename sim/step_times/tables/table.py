"""The base of tables of measured times: their parts, ranges and errors."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVLayout
from servetwin.sim.records.columns import Columns
from servetwin.sim.step_times.profile import ApiLatencyFit
from servetwin.sim.step_times.provenance import Excess, Origin, Provenance, Source, excesses_of
from servetwin.sim.step_times.server_model import UnmeasuredServer
from servetwin.sim.step_times.step_time import FloatArray, StepTime
from servetwin.sim.step_times.tables.interpolate import (
    LEVELS,
    HeldOutError,
    Interpolated,
    LevelArray,
    held_out_error,
)
from servetwin.sim.step_times.tables.plausibility import doubts_of
from servetwin.workloads.errors import ProfileError


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


class ScaledStepTime:
    """A step-time model, times a factor without prompts and another with them."""

    def __init__(self, model: StepTime, scale: tuple[float, float]) -> None:
        self.wants_contexts = getattr(model, "wants_contexts", False)
        self.wants_longest = getattr(model, "wants_longest", False)
        self._model, self._scale = model, scale

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the seconds of the model, scaled for that kind of step."""
        return self._model.seconds(shape, steps) * self._scale[bool(shape.prefill_chunks)]


class Table(ABC):
    """A step-time model that interpolates measured times (a ``StepTime``)."""

    parts: dict[str, TablePart]
    origin: Origin = "measured by others"

    @abstractmethod
    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the seconds of ``steps`` repetitions, each with the growing decodes one longer."""

    def scaled(self, factor: float) -> StepTime:
        """Return a model that takes ``factor`` times as long."""
        return ScaledStepTime(self, (factor, factor))

    def row_origins(self, steps: Columns) -> dict[Origin, FloatArray]:
        """Return the share of the time of each row of ``Run.steps``, by origin."""
        return {self.origin: np.ones(len(steps["steps"]))}

    @abstractmethod
    def levels(self, steps: StepColumns) -> LevelArray:
        """Return the place of each step in ``LEVELS``: it is as sure as its least sure part."""

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
        """Return the log deviation of a factor on all times: that of the worst major part."""
        errors = self.held_out_errors()
        major = [error for name, error in errors.items() if not self.parts[name].minor]
        return max((error.log_deviation() for error in major if error), default=0.0)

    def summary(self, seed: int = 0) -> list[str]:
        """Return a line per part: its points, ranges, held-out error; and what is doubtful."""
        errors = self.held_out_errors(seed)
        lines = [
            f"{name}: {len(part.times.times_s)} points, {_spans(self.ranges[name])}; held-out "
            f"error {errors[name] or 'unknown (too few points)'}"
            for name, part in self.parts.items()
        ]
        return [*lines, *(f"doubtful: {doubt}" for doubt in doubts_of(self))]


def worst(*levels: LevelArray) -> LevelArray:
    """Return the least sure of several levels."""
    most: LevelArray = np.maximum.reduce(levels)
    return most


def _spans(ranges: dict[str, tuple[float, float]]) -> str:
    return ", ".join(f"{axis} {low:,.0f} to {high:,.0f}" for axis, (low, high) in ranges.items())


@dataclass(frozen=True)
class TableSource(Source):
    """The provenance of a table: a row of steps counts as its middle, its chunks as equal."""

    profile: str
    table: Table

    def row_shares(self, steps: Columns) -> dict[Provenance, FloatArray]:
        """Return the share of each kind in every row, all of it being of the kind of its middle."""
        decodes, chunks = (steps[n].astype(float) for n in ("decode_sequences", "prefill_chunks"))
        context = steps["decode_context_tokens"] + decodes * (steps["steps"] - 1) / 2
        middles = StepColumns(decodes, context, chunks, *mean_chunks(steps, chunks))
        levels = self.table.levels(middles)
        return {kind: (levels == place).astype(float) for place, kind in enumerate(LEVELS)}

    def row_origins(self, steps: Columns) -> dict[Origin, FloatArray]:
        """Return the share of the time of each row, by origin."""
        return self.table.row_origins(steps)

    def excesses(self, steps: Columns) -> list[Excess]:
        """Return the axes that some step goes beyond."""
        largest: dict[str, float] = {}
        for axes in self.table.ranges.values():
            for axis, (_, most) in axes.items():
                largest[axis] = max(most, largest.get(axis, 0.0))
        return excesses_of(self.profile, _reached(steps), largest)


def mean_chunks(steps: Columns, chunks: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (rows, start) of a chunk of each row, from the rows and pairs of all its chunks."""
    count = np.maximum(1.0, chunks)
    rows = (steps["rows"] - steps["decode_sequences"]).astype(float) / count
    pairs = steps["prefill_pairs"].astype(float) / count
    before = pairs / np.maximum(1.0, rows) - (rows + 1) / 2
    return rows, np.maximum(0.0, np.rint(before))


def _reached(steps: Columns) -> dict[str, float]:
    """Return the largest value along the axes of tables; context is the mean of a decode."""
    chunks = steps["prefill_chunks"].astype(float)
    decodes = steps["decode_sequences"].astype(float)
    rows, starts = mean_chunks(steps, chunks)
    context = steps["decode_context_tokens"].astype(float) / np.maximum(1.0, decodes)
    values = {
        "rows": steps["rows"].astype(float),
        "decodes": decodes,
        "context": context + (steps["steps"].astype(float) - 1),
        "chunks": chunks,
        "chunk rows": rows * (chunks > 0),
        "chunk start": starts * (chunks > 0),
        "prompt": (rows + starts) * (chunks > 0),
    }
    return {axis: float(array.max(initial=0.0)) for axis, array in values.items()}


@dataclass(frozen=True)
class TableProfile(UnmeasuredServer):
    """Servers whose steps take as long as ``table`` says, under ``policies``.

    ``kv_bytes`` of one token's keys and values are needed to move them over a link. Tables do not
    say how keys and values are laid out: every layout takes as long. ``device`` is what they were
    measured on, where that is known, and ``devices`` how many of it make one server.
    """

    name: str
    table: Table
    policies: PolicyConfig
    kv_bytes: float | None = None
    api: ApiLatencyFit = field(default_factory=ApiLatencyFit)
    device: str = ""
    devices: int = 1

    @cached_property
    def log_deviation(self) -> float:
        """The standard deviation of the logarithm of a factor on all times."""
        return self.table.log_deviation()

    def model(self) -> StepTime:
        """Return the table as it is."""
        return self.table

    def drawn(self, rng: np.random.Generator) -> StepTime:
        """Return the table times a lognormal factor as large as the held-out error.

        An error of interpolation is the same in every step, so a replication draws it once.
        """
        return self.table.scaled(float(rng.lognormal(0.0, self.log_deviation)))

    def is_certain(self) -> bool:
        """Return whether every draw is the same: the table is too small to tell its error."""
        return not self.log_deviation

    @property
    def origin(self) -> Origin:
        """The origin of the table."""
        return self.table.origin

    def source(self, layout: KVLayout) -> TableSource:
        """Return the source of its step times."""
        return TableSource(self.name, self.table)

    def describe(self) -> list[str]:
        """Return its name, and its parts with their held-out errors."""
        return [
            f"table profile {self.name} ({self.origin})",
            *(f"  {line}" for line in self.table.summary()),
        ]

    def policy_config(self) -> PolicyConfig:
        """Return the policies of the profile."""
        return self.policies

    def kv_bytes_per_token(self) -> float:
        """Return the bytes of the keys and values of one token.

        Raises ``ProfileError`` when the profile does not say.
        """
        if self.kv_bytes is None:
            raise ProfileError(
                f"profile {self.name}: kv_bytes of a token are needed to move keys and values "
                "over a link"
            )
        return self.kv_bytes
