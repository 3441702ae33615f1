"""Step times from the layer times of a GPU (``layer_bundle``).

A step of n rows that yields a token to each of s sequences takes::

    layers * (operators(n) + attention + experts(n) + two all-reduces of n rows)
    + once(n) + head(s) + one all-reduce of n rows

Attention ranks that share experts (``group_seconds``) wait for each other in every layer::

    layers * (the longest operators(n) + attention + two all-reduces of n rows
              + experts(all rows) + an all-gather and a reduce-scatter of all rows)
    + the longest once(n) + head(s)

A rank without work has one row, and no attention and head. A device of ``ep`` has as many of the
experts, and gets the pairs of tokens and experts that are routed there.

The bundle has attention beside the chunk of one prompt. Several chunks are taken as one of as many
rows at the position that gives it as many query-key pairs; fresh chunks have fewer pairs than one
prompt of all their rows, and are taken as a shorter one. Swapping takes no time.
"""

from collections.abc import Sequence
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.link_sensitivity import link_lines
from servetwin.sim.step_times.piecewise import (
    Line,
    Piece,
    PiecewiseStepTime,
    durations_s,
    pieces_of,
)
from servetwin.sim.step_times.roofline.formats import ACTIVATION_BYTES
from servetwin.sim.step_times.step_time import UNIT_S, FloatArray, Remembered, to_units
from servetwin.sim.step_times.tables.attention_grid import AXES
from servetwin.sim.step_times.tables.interpolate import Curve, LevelArray
from servetwin.sim.step_times.tables.table import StepColumns, Table, TablePart, worst
from servetwin.workloads.errors import ProfileError

if TYPE_CHECKING:
    from servetwin.sim.step_times.tables.layer_bundle import LayerTimes

ONE_DEVICE = Layout()


class LayerTable(PiecewiseStepTime, Table):
    """A model on devices whose layer times were measured.

    ``factor`` scales all times. ``link`` joins the devices; without one their messages take no
    time. ``layout`` has the attention ranks that share experts, and how; the busiest device of
    these gets ``imbalance`` times the mean of the pairs. A step of one rank finds the others
    without work. Raises ``ProfileError`` for a model whose experts the bundle lacks.
    """

    def __init__(
        self,
        times: "LayerTimes",
        model: ModelShape,
        link: Link | None = None,
        factor: float = 1.0,
        layout: Layout = ONE_DEVICE,
        imbalance: float = 1.0,
    ) -> None:
        self.times, self.model, self.link, self.factor = times, model, link, factor
        self.layout, self.imbalance = layout, imbalance
        self.layers = model.layer_count
        self.wants_longest = times.decode_skew is not None or times.mixed_skew is not None
        self.parts = _parts(times)
        self._experts = model.experts()
        if (self._experts is None) != (times.experts is None):
            has, lacks = ("moe.csv", "no experts") if times.experts else ("no moe.csv", "experts")
            raise ProfileError(f"layers: the bundle has {has}, but {model.name} has {lacks}")
        self._rows = Remembered(self._of_rows)
        self._shared = Remembered(self._of_all_rows)
        self._once = Remembered(partial(self._units, times.once))
        self._heads = Remembered(partial(self._units, times.head))
        self._lines = Remembered(self._line)
        self._at_decodes = Remembered(times.attention.at_decodes)

    def scaled(self, factor: float) -> "LayerTable":
        """Return a model that takes ``factor`` times as long."""
        return self._over(self.link, self.factor * factor)

    def summary(self, seed: int = 0) -> list[str]:
        """Return the lines of its parts, and one of the link."""
        lines = super().summary(seed)
        return lines if self.link is None else [*lines, *link_lines(self.link, self._over)]

    def _over(self, link: Link | None, factor: float | None = None) -> "LayerTable":
        factor = self.factor if factor is None else factor
        return LayerTable(self.times, self.model, link, factor, self.layout, self.imbalance)

    def piece(self, shape: BatchShape, step: int = 0) -> Piece:
        """Return the steps from ``step`` on whose durations are an arithmetic series."""
        rows = shape.rows
        units = self._rows[rows] + self._shared[rows + self.layout.dp - 1]
        units += self._once[rows] + self._heads[shape.sequences]
        first, slope, steps = self._attended(shape, step)
        return Piece(units + first, slope, steps)

    def group_seconds(self, shapes: Sequence[BatchShape], steps: int = 1) -> FloatArray:
        """Return the durations of ``steps`` repetitions, with the batch of each rank."""
        busy = [shape for shape in shapes if shape.rows]
        all_rows = len(shapes) - len(busy) + sum(shape.rows for shape in busy)
        apart = self._shared[all_rows]
        apart += max(self._once[shape.rows] + self._heads[shape.sequences] for shape in busy)
        alone_s = [durations_s(pieces_of(self._layers, shape, steps)) for shape in busy]
        seconds: FloatArray = np.max(alone_s, axis=0) + apart * UNIT_S
        return seconds

    def _layers(self, shape: BatchShape, step: int) -> Piece:
        """Return what a rank computes alone in all layers."""
        first, slope, steps = self._attended(shape, step)
        return Piece(self._rows[shape.rows] + first, slope, steps)

    def _attended(self, shape: BatchShape, step: int) -> Piece:
        """Return the attention of all layers."""
        decodes, total, growing, chunks, _, _, _, longest = shape
        total += growing * step
        if chunks:
            return Piece(self._mixed(shape, total, step), 0, 1)
        by_mean, by_longest = self._lines[decodes]
        first, slope, steps = by_mean.piece(total, growing)
        if by_longest is not None and longest:
            more, faster, until = by_longest.piece(longest + step, 1)
            first, slope = first + more, slope + faster
            steps = min(steps, until)
        return Piece(first, slope, steps)

    def log_deviation(self) -> float:
        """Return the log deviation of a factor on all times: the error of all unseen points.

        The errors of single points differ in sign, and a run has steps at many.
        """
        errors = self.held_out_errors().values()
        return max((abs(error.of_sum) for error in errors if error), default=0.0)

    def levels(self, steps: StepColumns) -> LevelArray:
        """Return those of operators, head and attention, the least sure of each step."""
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
        """Return the units of the rows of one rank, without experts."""
        units = self._units(self.times.layer, rows, self.layers)
        if self.link is not None:
            size_bytes = rows * self.model.width * ACTIVATION_BYTES
            reduced_s = self.link.all_reduce_s(size_bytes, self.times.ranks, "ring")
            units += to_units((2 * self.layers + 1) * reduced_s)
        return units

    def _of_all_rows(self, rows: int) -> int:
        """Return the units of experts that take the rows of all ranks, and of their messages."""
        units, ranks = 0, self.layout.dp
        if self.link is not None and ranks > 1:
            size_bytes = rows * self.model.width * ACTIVATION_BYTES
            exchanged_s = self.link.all_gather_s(size_bytes, ranks)
            exchanged_s += self.link.reduce_scatter_s(size_bytes, ranks)
            units += to_units(self.layers * exchanged_s)
        if self.times.experts is not None and self._experts is not None:
            share = self.times.expert_ranks / self.layout.ep
            pairs = np.array([rows * share * (self.imbalance if self.layout.ep > 1 else 1.0)])
            reached = np.array([self._experts.touched_experts(rows) / self.layout.ep])
            per_layer_s = float(self.times.experts(pairs, reached)[0])
            units += to_units(self.factor * self.layers * per_layer_s)
        return units

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


def _parts(times: "LayerTimes") -> dict[str, TablePart]:
    parts = {
        "layer": TablePart(("rows",), times.layer),
        "once a step": TablePart(("rows",), times.once, minor=True),
        "head and sampler": TablePart(("sequences",), times.head),
        "attention": TablePart(AXES, times.attention),
    }
    if times.experts is not None:
        parts["experts"] = TablePart(("rows", "experts reached"), times.experts)
    return parts
