"""A fitted step-time model outside the measured range, where its slopes are not known.

Each feature costs what the fit says up to the largest measured value, and ``factor`` times that
beyond: t(x) = t(cut x) + factor (t(x) - t(cut x)), with x cut at the maxima. A factor of
median 1, drawn once for each replication, leaves intervals inside the range as they are and widens
those outside in proportion to how much of a step lies there.
"""

from itertools import pairwise

import numpy as np

from servetwin.policies.batch import BatchShape, Totals
from servetwin.sim.step_times.provenance import MeasuredRange
from servetwin.sim.step_times.step_time import (
    UNIT_S,
    FloatArray,
    LinearStepTime,
    Remembered,
    batch_pairs,
    totals_of,
)

# Standard deviation of the factor's logarithm: nine of ten are between 0.44 and 2.3.
LOG_SPREAD = 0.5


def draw_extrapolation_factor(rng: np.random.Generator) -> float:
    """Return a random factor on the cost of the unmeasured part of every step."""
    return float(rng.lognormal(0.0, LOG_SPREAD))


class ExtrapolatedStepTime:
    """The step times of ``model``; what they cost beyond ``largest`` is multiplied by ``factor``.

    The context of the decodes may pass its maximum within a run of steps, so durations are sampled.
    """

    def __init__(self, model: LinearStepTime, largest: MeasuredRange, factor: float) -> None:
        self._model = model
        self._largest = largest
        self._more = factor - 1
        of = model.coefficients
        self._decode_s, self._chunk_s = of[1], of[2]
        self._context_s, self._pairs_s, self._prefill_context_s, self._batch_s = of[-4:]
        self._rows_beyond_s = Remembered(self._of_rows)

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the durations of ``steps`` repetitions, each with growing decodes one longer."""
        totals = totals_of(shape)
        if steps == 1:
            return np.array([self.step_s(totals, shape.swapped_tokens)])
        lasted_s = self._model.seconds(shape, steps)
        beyond_s = self._beyond_s(totals)
        context, growing = shape.decode_context_tokens, shape.decode_growing
        most = self._largest.decode_context_tokens
        if not self._batch_s and context + growing * (steps - 1) <= most:
            return lasted_s + self._more * beyond_s if beyond_s else lasted_s
        past: FloatArray = np.maximum(0.0, context + growing * np.arange(steps) - most)
        past_s = beyond_s + self._context_s * past
        if self._batch_s:
            growth = shape.rows * growing * np.arange(steps, dtype=np.float64)
            pairs = batch_pairs(totals) + growth
            past_s += self._batch_s * np.maximum(0.0, pairs - self._largest.batch_pairs)
        return lasted_s + self._more * past_s

    def step_s(self, totals: Totals, swapped: int) -> float:
        """Return the duration of one step: as ``seconds``, to the last bit, without arrays."""
        context = totals[1]
        lasted_s = self._model.of_totals(totals, swapped)[0] * UNIT_S
        past_s = self._beyond_s(totals)
        if context > self._largest.decode_context_tokens:
            past_s += self._context_s * (context - self._largest.decode_context_tokens)
        if self._batch_s:
            beyond = max(0.0, batch_pairs(totals) - self._largest.batch_pairs)
            past_s += self._batch_s * beyond
        return lasted_s + self._more * past_s

    def _beyond_s(self, totals: Totals) -> float:
        """Return the cost of the features beyond their maxima, without the decode context."""
        decodes, _, _, chunks, rows, pairs, starts = totals
        largest = self._largest
        beyond_s = 0.0
        if decodes > largest.decode_sequences:
            beyond_s = self._decode_s * (decodes - largest.decode_sequences)
        if rows > largest.rows:
            beyond_s += self._rows_beyond_s[rows]
        if chunks > largest.prefill_chunks:
            beyond_s += self._chunk_s * (chunks - largest.prefill_chunks)
        if pairs > largest.prefill_pairs:
            beyond_s += self._pairs_s * (pairs - largest.prefill_pairs)
        if starts > largest.prefill_context_tokens:
            beyond_s += self._prefill_context_s * (starts - largest.prefill_context_tokens)
        return beyond_s

    def _of_rows(self, rows: int) -> float:
        """Return the cost of rows beyond the measured maximum: slope times length, by segment."""
        most, slopes = self._largest.rows, self._model.coefficients[3:-4]
        ends = pairwise((*self._model.knots, float("inf")))
        lengths = (max(0.0, min(rows, end) - max(most, start)) for start, end in ends)
        return sum(slope * length for slope, length in zip(slopes, lengths, strict=True))
