"""Step times from the layer times of a GPU (``layer_bundle``).

A step of n rows that yields a token to each of s sequences takes::

    layers * (operators(n) + attention + experts(n) + two all-reduces of n rows)
    + once(n) + head(s) + one all-reduce of n rows

The bundle has attention beside the chunk of one prompt. Several chunks are taken as one of as many
rows at the position that gives it as many query-key pairs; fresh chunks have fewer pairs than one
prompt of all their rows, and are taken as a shorter one. Swapping takes no time.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.catalogue.layers import Experts
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.piecewise import Line, Piece, PiecewiseStepTime
from servetwin.sim.step_times.roofline.formats import ACTIVATION_BYTES
from servetwin.sim.step_times.step_time import Remembered, to_units
from servetwin.sim.step_times.tables.attention_grid import AXES
from servetwin.sim.step_times.tables.interpolate import Curve, LevelArray
from servetwin.sim.step_times.tables.layer_bundle import LayerTimes
from servetwin.sim.step_times.tables.table import StepColumns, Table, TablePart, worst
from servetwin.workloads.errors import ProfileError


class LayerTable(PiecewiseStepTime, Table):
    """A model on devices whose layer times were measured.

    ``factor`` scales all times. ``link`` joins the ranks of a tensor-parallel bundle; without one
    their messages take no time. Raises ``ProfileError`` for a model whose experts the bundle lacks.
    """

    def __init__(
        self, times: LayerTimes, model: ModelShape, link: Link | None = None, factor: float = 1.0
    ) -> None:
        self.times, self.model, self.link, self.factor = times, model, link, factor
        self.layers = model.layer_count
        self.wants_longest = times.decode_skew is not None or times.mixed_skew is not None
        self.parts = _parts(times)
        self._experts = _experts(model)
        if (self._experts is None) != (times.experts is None):
            has, lacks = ("moe.csv", "no experts") if times.experts else ("no moe.csv", "experts")
            raise ProfileError(f"layers: the bundle has {has}, but {model.name} has {lacks}")
        self._rows = Remembered(self._of_rows)
        self._heads = Remembered(self._of_sequences)
        self._lines = Remembered(self._line)
        self._at_decodes = Remembered(times.attention.at_decodes)

    def scaled(self, factor: float) -> "LayerTable":
        """Return a model that takes ``factor`` times as long."""
        return LayerTable(self.times, self.model, self.link, self.factor * factor)

    def piece(self, shape: BatchShape, step: int = 0) -> Piece:
        """Return the steps from ``step`` on whose durations are an arithmetic series."""
        decodes, total, growing, chunks, _, _, _, longest = shape
        rows = decodes
        for _, n in chunks:
            rows += n
        units = self._rows[rows] + self._heads[decodes + len(chunks)]
        total += growing * step
        if chunks:
            return Piece(units + self._mixed(shape, total, step), 0, 1)
        by_mean, by_longest = self._lines[decodes]
        first, slope, steps = by_mean.piece(total, growing)
        if by_longest is not None and longest:
            more, faster, until = by_longest.piece(longest + step, 1)
            first, slope = first + more, slope + faster
            steps = min(steps, until)
        return Piece(units + first, slope, steps)

    def log_deviation(self) -> float:
        """Return the log deviation of a factor on all times: the error of all unseen points.

        The errors of single points differ in sign, and a run has steps at many.
        """
        errors = self.held_out_errors().values()
        return max((abs(error.of_sum) for error in errors if error), default=0.0)

    def _levels(self, steps: StepColumns) -> LevelArray:
        decodes, context, chunks, chunk_rows, chunk_start = steps
        rows = decodes + chunks * chunk_rows
        mean_context = np.where(decodes > 0, context / np.maximum(decodes, 1) - 1, 0.0)
        attention = self.times.attention.levels(
            chunks * chunk_rows, chunk_start, decodes, mean_context
        )
        return worst(
            self.times.layer.levels(rows), self.times.head.levels(decodes + chunks), attention
        )

    def _units(self, curve: Curve, x: float, times: float = 1.0) -> int:
        return to_units(self.factor * times * float(curve(np.array([float(x)]))[0]))

    def _of_rows(self, rows: int) -> int:
        """Return the units that depend on the number of rows alone."""
        units = self._units(self.times.layer, rows, self.layers)
        units += self._units(self.times.once, rows)
        if self.link is not None:
            size_bytes = rows * self.model.width * ACTIVATION_BYTES
            reduced_s = self.link.all_reduce_s(size_bytes, self.times.ranks, "ring")
            units += to_units((2 * self.layers + 1) * reduced_s)
        if self.times.experts is not None and self._experts is not None:
            reached = self._experts.touched_experts(rows)
            per_layer_s = self.times.experts(np.array([float(rows)]), np.array([reached]))[0]
            units += to_units(self.factor * self.layers * float(per_layer_s))
        return units

    def _of_sequences(self, sequences: int) -> int:
        return self._units(self.times.head, sequences)

    def _line(self, decodes: int) -> "tuple[Line, Line | None]":
        """Return the attention of a step without chunks by the mean and by the longest context."""
        context_s = self.times.attention.of_chunk(self._at_decodes[decodes], 0, 0)
        contexts = self.times.attention.axes[AXES.index("context")]
        seconds = self.factor * self.layers * context_s
        skew = self.times.decode_skew
        if skew is None:
            return Line.of(contexts, seconds, max(1, decodes)), None
        share = skew.share(decodes)
        return (
            Line.of(contexts, (1 - share) * seconds, max(1, decodes)),
            Line.of(contexts, share * seconds, 1),
        )

    def _mixed(self, shape: BatchShape, total: int, step: int) -> int:
        """Return the units of attention of a step with chunks."""
        decodes = shape.decode_sequences
        rows, start = as_one_chunk(shape.prefill_chunks)
        attention = self.times.attention
        seconds = attention.of_chunk(self._at_decodes[decodes], rows, start)
        layer_s = attention.at_context(seconds, total / decodes - 1 if decodes else 0.0)
        skew = self.times.mixed_skew
        if skew is not None and shape.longest_context:
            at_longest = attention.at_context(seconds, shape.longest_context + step - 1)
            layer_s += skew.share(decodes) * (at_longest - layer_s)
        return to_units(self.factor * self.layers * layer_s)


def as_one_chunk(chunks: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Return (rows, start) of the chunk of one prompt that stands for several."""
    if len(chunks) == 1:
        return float(chunks[0][1]), float(chunks[0][0])
    rows = sum(n for _, n in chunks)
    pairs = sum(n * (start + n / 2) for start, n in chunks)
    start = pairs / rows - rows / 2
    return (float(rows), start) if start >= 0 else (sqrt(2 * pairs), 0.0)


def _experts(model: ModelShape) -> Experts | None:
    experts = (group.ffn for group in model.layers if isinstance(group.ffn, Experts))
    return next(experts, None)


def _parts(times: LayerTimes) -> dict[str, TablePart]:
    parts = {
        "layer": TablePart(("rows",), times.layer),
        "once a step": TablePart(("rows",), times.once, minor=True),
        "head and sampler": TablePart(("sequences",), times.head),
        "attention": TablePart(AXES, times.attention),
    }
    if times.experts is not None:
        parts["experts"] = TablePart(("rows", "experts reached"), times.experts)
    return parts
