"""Step times from measured kernel tables, which ``kernel_library`` opens.

A step of decodes takes what the tables say of as many decodes of the same mean context. A step with
chunks takes the sum of

- everything but attention, for all its rows;
- attention of the fresh chunks, as a batch of as many prompts of their mean length;
- attention of the chunks that continue, as one chunk with as many query-key pairs;
- attention of the decodes at their own mean context: it is not the length of the prompts beside.

Where attention has data parallel ranks, a table is of one: a batch is that of the rank, and experts
take the tokens of as many equal batches as there are ranks. A step of unequal batches is the
longest of their own, but for all that is no attention: that is of the mean of their rows.

The host's work between steps is in no table. Swapping takes no time.
"""

from collections.abc import Sequence
from math import ceil
from typing import Protocol

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.piecewise import Line, Piece, PiecewiseStepTime
from servetwin.sim.step_times.provenance import Origin
from servetwin.sim.step_times.step_time import UNIT_S, FloatArray, Remembered, to_units
from servetwin.sim.step_times.tables.interpolate import LevelArray
from servetwin.sim.step_times.tables.layer_table import as_one_chunk
from servetwin.sim.step_times.tables.table import StepColumns, Table


class KernelTimes(Protocol):
    """Milliseconds of the parts of a step, for one model on one kind of GPU."""

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        """Return the time of a step of decodes that find ``isl`` positions each."""

    def mixed_step_breakdown(
        self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int, prefix: int
    ) -> tuple[float, float, float, float]:
        """Return the time of a mixed step: all, all but attention, of chunks, of decodes."""


_CONTEXTS = (1, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
# Assumed of a factor on all times: the tables are of kernels, and no server was measured.
_LOG_DEVIATION = 0.10


class KernelTable(PiecewiseStepTime, Table):
    """A model on a GPU by kernel tables, times ``factor``; ``description`` is of the tables.

    ``doubts`` say why the tables are not to be trusted (``plausibility``); ``left_out_s`` is what a
    step of this model does that the tables do not hold.
    """

    origin: Origin = "kernel tables"

    def __init__(
        self,
        times: KernelTimes,
        description: str,
        factor: float = 1.0,
        doubts: tuple[str, ...] = (),
        left_out_s: float = 0.0,
    ) -> None:
        self.times, self.description, self.factor = times, description, factor
        self.doubts, self.left_out_s = doubts, left_out_s
        self._left_out = to_units(factor * left_out_s)
        self.parts = {}
        self._dense = Remembered(self._of_rows)
        self._fresh = Remembered(self._of_fresh)
        self._continued = Remembered(self._of_continued)
        self._steps = Remembered(self._of_decodes)
        self._decode_attention = Remembered(self._of_decode_attention)

    def scaled(self, factor: float) -> "KernelTable":
        """Return a model that takes ``factor`` times as long."""
        return KernelTable(
            self.times, self.description, self.factor * factor, self.doubts, self.left_out_s
        )

    def piece(self, shape: BatchShape, step: int = 0) -> Piece:
        """Return the steps from ``step`` on whose durations are an arithmetic series."""
        decodes, total, growing, chunks, _, _, _, _ = shape
        total += growing * step
        if not chunks:
            first, slope, steps = self._steps[decodes].piece(total, growing)
            return Piece(first + self._left_out, slope, steps)
        units = self._dense[shape.rows] + self._chunks_units(chunks) + self._left_out
        if decodes:
            units += self._decode_attention[decodes].piece(total, 0)[0]
        return Piece(units, 0, 1)

    def group_seconds(self, shapes: Sequence[BatchShape], steps: int = 1) -> FloatArray:
        """Return the durations of ``steps`` repetitions, with the batch of each rank."""
        mean = self._dense[ceil(sum(max(1, shape.rows) for shape in shapes) / len(shapes))]
        alone_s = [
            self.seconds(shape, steps) + (mean - self._dense[shape.rows]) * UNIT_S
            for shape in shapes
            if shape.rows
        ]
        seconds: FloatArray = np.max(alone_s, axis=0)
        return seconds

    def log_deviation(self) -> float:
        """Return the assumed deviation of a factor on all times."""
        return _LOG_DEVIATION

    def summary(self, seed: int = 0) -> list[str]:
        """Return one line on the tables, and one for each doubt."""
        return [self.description, *(f"doubtful: {doubt}" for doubt in self.doubts)]

    def levels(self, steps: StepColumns) -> LevelArray:
        """Return that every time is interpolated, as the package does it."""
        return np.ones(len(steps.decodes), dtype=np.int8)

    def _units(self, milliseconds: float) -> int:
        return to_units(1e-3 * self.factor * milliseconds)

    def _of_rows(self, rows: int) -> int:
        return self._units(self.times.mixed_step_breakdown(rows, 0, rows, 2, 0)[1])

    def _chunks_units(self, chunks: tuple[tuple[int, int], ...]) -> int:
        fresh = [n for start, n in chunks if not start]
        continued = [(start, n) for start, n in chunks if start]
        units = 0
        if fresh:
            units += self._fresh[sum(fresh), len(fresh)]
        if continued:
            rows, start = as_one_chunk(continued)
            units += self._continued[round(rows), round(start)]
        return units

    def _of_fresh(self, rows_and_chunks: tuple[int, int]) -> int:
        rows, chunks = rows_and_chunks
        length = ceil(rows / chunks)
        return self._units(self.times.mixed_step_breakdown(rows, 0, length, 2, 0)[2])

    def _of_continued(self, rows_and_start: tuple[int, int]) -> int:
        """Return the units of a chunk; the tables give it as a share of the whole prompt."""
        rows, start = rows_and_start
        length = start + rows
        share = self.times.mixed_step_breakdown(rows, 0, length, 2, start)[2]
        return self._units(share * ceil(length / rows))

    def _of_decodes(self, decodes: int) -> Line:
        of = self.times.decode_step_latency
        return self._line([of(decodes, context, 2) for context in _CONTEXTS], decodes)

    def _of_decode_attention(self, decodes: int) -> Line:
        of = self.times.mixed_step_breakdown
        return self._line([of(1, decodes, context, 2, 0)[3] for context in _CONTEXTS], decodes)

    def _line(self, milliseconds: list[float], decodes: int) -> Line:
        seconds: FloatArray = 1e-3 * self.factor * np.array(milliseconds)
        return Line.of(np.array(_CONTEXTS, dtype=float), seconds, decodes)
