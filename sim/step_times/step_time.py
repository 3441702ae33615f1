"""Step times: the protocol, the features, and the model that a calibration fits.

The duration of a step is a sum of non-negative parts, each with a physical cause::

    t =   constant                            scheduling, sampling, messages, kernel launches
        + a_d * decodes + a_p * chunks        attention calls, gathers, one chunk to send, each
        + sum_i b_i * rows in segment i       matrix work; the slope changes at the knots: below
                                              the knee weights are read anyway, above it compute
        + c_d * decode context                keys and values read by the decodes
        + c_p * prefill pairs                 query-key pairs inside the prefill chunks
        + c_g * prefill context               earlier positions gathered for the chunks
        + c_b * batch pairs                   every row against every position of the batch, in an
                                              engine that masks one attention over all sequences
        + c_s * swapped tokens                keys and values moved over the host link

Every part grows with its feature, so the model is monotone, also in extrapolation.
"""

import math
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from servetwin.policies.batch import Batch, BatchShape, Totals
from servetwin.sim.step_times.protocol import FloatArray as FloatArray
from servetwin.sim.step_times.protocol import StepTime as StepTime
from servetwin.workloads.native_class import mypyc_attr

# Simulated time is in whole ticks of 2^-64 s: sums are exact, so ties are ties.
# A run of k steps in closed form ends on the very tick on which k single steps end, whatever the
# order of the additions. People, files and policies see seconds.
TICK_BITS = 64
SECONDS_PER_TICK = math.ldexp(1.0, -TICK_BITS)
_TICKS_PER_S = math.ldexp(1.0, TICK_BITS)


def to_ticks(seconds: float) -> int:
    """Return the last tick at or before ``seconds`` (>= 0)."""
    return int(seconds * _TICKS_PER_S)


# Rows at which the per-row slope may change; the last segment is open.
ROW_KNOTS = (0, 2, 4, 6, 7, 8, 12, 16, 24, 32, 64, 128, 512)

# The features that a calibration fits. A profile may have ``rows_from_<n>`` for any n.
FEATURES = (
    "constant",
    "decode_sequences",
    "prefill_chunks",
    *(f"rows_from_{knot}" for knot in ROW_KNOTS),
    "decode_context_tokens",
    "prefill_pairs",
    "prefill_context_tokens",
    "batch_pairs",
)
# The feature that grows faster than the batch; older profiles lack it, and most engines.
BATCH_PAIRS = FEATURES.index("batch_pairs")

SWAPPED_TOKENS = "swapped_tokens"
# The bits by which a unit of step times is longer than a tick: 2^-48 s.
UNIT_BITS = 16
UNIT_S = math.ldexp(1.0, UNIT_BITS - TICK_BITS)
# Half of what a signed integer of 64 bits counts up to.
_HALF_RANGE = 1 << 62


def shape_for(model: StepTime) -> Callable[[Batch], BatchShape]:
    """Return the function that gives the shape of a batch, with all that a model wants to know."""
    if getattr(model, "wants_contexts", False):
        return shape_with_contexts
    if getattr(model, "wants_longest", False):
        return _shape_with_longest
    return Batch.shape


def _shape_with_longest(batch: Batch) -> BatchShape:
    # a third of the cost of _replace
    return tuple.__new__(BatchShape, (*batch.shape()[:-1], longest_context(batch)))


def shape_with_contexts(batch: Batch) -> BatchShape:
    """Return the shape of a batch with the context of each decode."""
    return batch.shape()._replace(decode_contexts=decode_contexts(batch))


def decode_contexts(batch: Batch) -> tuple[int, ...]:
    """Return the positions that each decode attends to, its own too; growing ones first."""
    members: list[int] = []
    if batch.lockstep is not None and not batch.drafted:
        members = [seq.computed_tokens + 1 for seq in batch.lockstep]
    prefills = batch.one_row_prefills
    ones = [e for e in batch.chunks if e.rows == 1 and not (e.tokens and prefills)]
    ones.sort(key=lambda entry: -entry.tokens)
    return (*members, *(entry.start + 1 for entry in ones))


def longest_context(batch: Batch) -> int:
    """Return the most positions that a growing decode attends to, its own too; 0 for none."""
    group, longest = batch.lockstep, 0
    if group is not None and group.size and not batch.drafted:
        longest = group.longest_tokens() + 1
    if batch.one_row_prefills:
        return longest
    for _, start, tokens, _, padding in batch.chunks:
        if tokens == 1 and not padding and start >= longest:
            longest = start + 1
    return longest


@mypyc_attr(allow_interpreted_subclasses=True)
class AffineStepTime(ABC):
    """A step-time model that is affine in the context of the decodes: runs have a closed form.

    ``decodes`` are the units of a step by its decodes: (without context, per context token).
    Units are of 2^-48 s.
    """

    decodes: "Remembered[int, tuple[int, int]]"

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the durations of ``steps`` repetitions, an arithmetic series, in seconds."""
        first, slope = self.affine(shape)
        return (first + slope * np.arange(steps, dtype=np.float64)) * UNIT_S

    @abstractmethod
    def affine(self, shape: BatchShape) -> tuple[int, int]:
        """Return (first step, growth per step) in units of 2^-48 s: ``seconds``, but exact."""


def features(shape: BatchShape) -> list[float]:
    """Return the values of ``FEATURES`` for one batch."""
    totals = totals_of(shape)
    decodes, context, _, chunks, rows, pairs, starts = totals
    ends = (*ROW_KNOTS[1:], rows)
    segments = [max(0, min(rows, end) - start) for start, end in zip(ROW_KNOTS, ends, strict=True)]
    values = (1, decodes, chunks, *segments, context, pairs, starts, batch_pairs(totals))
    return list(map(float, values))


def totals_of(shape: BatchShape) -> Totals:
    """Return the sums of a batch that verifies no drafts."""
    decodes, context, growing, chunks, _, _, _, _ = shape
    rows, pairs, starts = decodes, 0, 0
    for start, n in chunks:
        rows += n
        pairs += n * start + (n * (n + 1) >> 1)
        starts += start
    return decodes, context, growing, len(chunks), rows, pairs, starts


def batch_pairs(totals: Totals) -> int:
    """Return the pairs of every row with every position of a batch."""
    decodes, context, _, _, rows, _, starts = totals
    return rows * (context + starts + rows - decodes)


@mypyc_attr(allow_interpreted_subclasses=True)
class LinearStepTime(AffineStepTime):
    """A model with a coefficient in seconds for each of ``FEATURES``, in that order.

    The last, ``batch_pairs``, may be missing: it is 0 then.
    """

    def __init__(
        self, coefficients: Iterable[float], knots: tuple[int, ...] = ROW_KNOTS, swap_s: float = 0.0
    ) -> None:
        self.coefficients = tuple(coefficients)
        if len(self.coefficients) == 6 + len(knots):
            self.coefficients += (0.0,)
        self.knots = knots
        # Seconds per KV position that moves between device and host.
        self.swap_s = swap_s
        units = [to_units(coefficient) for coefficient in self.coefficients]
        self._constant, self._decode, self._chunk, *self._rows = units[: 3 + len(knots)]
        self._context, self._pairs, self._prefill_context, self._batch = units[3 + len(knots) :]
        self._swap = to_units(swap_s)
        lengths = (end - start for start, end in pairwise(knots))
        segments = (length * slope for length, slope in zip(lengths, self._rows, strict=False))
        self._rows_to_knots = list(accumulate(segments, initial=0))
        self._rows_units = Remembered(self._of_rows)
        self.decodes = Remembered(self._of_decodes)

    @classmethod
    def of(cls, by_name: Mapping[str, float]) -> "LinearStepTime":
        """Return a model from coefficients by feature; others are 0.

        Raises ``ValueError`` for an unknown feature.
        """
        in_rows = [name for name in by_name if re.fullmatch(r"rows_from_\d+", name)]
        unknown = set(by_name) - set(FEATURES) - set(in_rows) - {SWAPPED_TOKENS}
        if unknown:
            raise ValueError(f"unknown features {sorted(unknown)}; known are {FEATURES}")
        knots = tuple(sorted({0, *(int(name[10:]) for name in in_rows)}))
        names = [*FEATURES[:3], *(f"rows_from_{knot}" for knot in knots), *FEATURES[-4:]]
        swap_s = by_name.get(SWAPPED_TOKENS, 0.0)
        return cls([by_name.get(name, 0.0) for name in names], knots, swap_s)

    def scaled(self, factor: float) -> "LinearStepTime":
        """Return a model of an engine that computes ``factor`` times as slowly."""
        return LinearStepTime([factor * c for c in self.coefficients], self.knots, self.swap_s)

    def affine(self, shape: BatchShape) -> tuple[int, int]:
        """Return (first step, growth per step) in units of 2^-48 s."""
        return self.of_totals(totals_of(shape), shape.swapped_tokens)

    def of_totals(self, totals: Totals, swapped: int) -> tuple[int, int]:
        """Return ``affine`` of a batch without drafts that has these totals."""
        decodes, context, growing, chunks, rows, pairs, starts = totals
        slope = self._context
        units = (
            self._constant
            + self._decode * decodes
            + self._chunk * chunks
            + self._rows_units[rows]
            + slope * context
            + self._pairs * pairs
            + self._prefill_context * starts
        )
        if swapped:
            units += self._swap * swapped
        if self._batch:
            slope += self._batch * rows
            units += self._batch * rows * (context + starts + rows - decodes)
        return units, slope * growing

    def _of_decodes(self, decodes: int) -> tuple[int, int]:
        constant = self._constant + self._decode * decodes + self._of_rows(decodes)
        return constant, self._context + self._batch * decodes

    def _of_rows(self, rows: int) -> int:
        place = bisect_right(self.knots, rows) - 1
        if place < 0:
            return 0
        return self._rows_to_knots[place] + (rows - self.knots[place]) * self._rows[place]


Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(dict[Key, Value]):
    """A function that remembers its values."""

    def __init__(self, function: Callable[[Key], Value]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: Key) -> Value:
        self[key] = value = self._function(key)
        return value


def to_units(seconds: float) -> int:
    """Return the nearest number of units of 2^-48 s."""
    return round(seconds / UNIT_S)


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True)
class ApiLatency:
    """The latency that the HTTP process adds to a request, in seconds.

    ``request_s`` (and ``request_per_token_s`` for every prompt token) from sending to the queue of
    the scheduler; ``chunk_s`` (and ``chunk_per_sequence_s`` for every sequence of the step) from
    the end of a step to the chunk at the client.
    """

    request_s: float = 0.0
    request_per_token_s: float = 0.0
    chunk_s: float = 0.0
    chunk_per_sequence_s: float = 0.0

    def request_in_s(self, prompt_tokens: int) -> float:
        """Return the seconds until the scheduler has the request."""
        return self.request_s + self.request_per_token_s * prompt_tokens

    def chunk_out_s(self, sequences: int) -> float:
        """Return the seconds until the client has a token of a step of ``sequences`` sequences."""
        return self.chunk_s + self.chunk_per_sequence_s * sequences


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True, eq=False)
class NoiseSample:
    """A sample of factors on step durations; ``correlation`` is that of neighbouring steps.

    The correlation is of normal scores: a step draws the factor whose rank is that of a Gaussian
    autoregressive process (a copula), so its distribution is the sample's whatever the correlation.
    """

    factors: FloatArray
    correlation: float = 0.0


NO_NOISE = NoiseSample(np.ones(1))


def _continued(before: int, sums: npt.NDArray[np.int64]) -> list[int]:
    """Return ``sums`` with ``before`` added to each, which may leave no room in 64 bits."""
    if before >= _HALF_RANGE:
        return [before + partial for partial in sums.tolist()]
    continued: list[int] = (sums + before).tolist()
    return continued


class StepNoise:
    """Random factors on step durations, one per step index, independent of macro-stepping.

    Factors are multiples of 2^-16. Their sums are kept, so that a run of steps is summed at once.
    """

    _FEWEST: ClassVar[int] = 64
    _MOST: ClassVar[int] = 4096
    """Steps drawn at once: few at first, for the memory of replicas that run few steps."""
    _KEPT: ClassVar[int] = 16 * _MOST

    def __init__(self, sample: NoiseSample, rng: np.random.Generator) -> None:
        self._sample = np.rint(np.asarray(sample.factors) * (1 << UNIT_BITS)).astype(np.int64)
        self._correlation = sample.correlation
        self._score = 0.0
        if self._correlation:
            self._sample.sort()
            self._score = float(rng.standard_normal())
        self._rng = rng
        self._first = 0  # the step of entry 0 of the sums
        self._sums = [0]
        self._weighted_sums = [0]

    def is_none(self) -> bool:
        """Return whether every factor is 1."""
        return bool((self._sample == 1 << UNIT_BITS).all())

    def factors(self, first_step: int, steps: int) -> FloatArray:
        """Return the factors of ``steps`` steps; ``first_step`` must not decrease between calls."""
        offset, sums, _ = self.draw(first_step, steps)
        start = first_step - offset
        ends = np.array(sums[start : start + steps + 1])
        noise: FloatArray = (ends[1:] - ends[:-1]) / (1 << UNIT_BITS)
        return noise

    def factor(self, step: int) -> float:
        """Return the factor of one step; ``step`` must not decrease between calls."""
        offset, sums, _ = self.draw(step, 1)
        return (sums[step - offset + 1] - sums[step - offset]) / (1 << UNIT_BITS)

    def draw(self, first_step: int, steps: int) -> tuple[int, list[int], list[int]]:
        """Return (offset, sums of factor, sums of factor * step) for ``steps`` steps.

        Entry ``j - offset`` sums over the steps before ``j``, in units of 2^-16.
        """
        if len(self._sums) > self._KEPT:
            past = first_step - self._first
            del self._sums[:past], self._weighted_sums[:past]
            self._first = first_step
        while self._first + len(self._sums) <= first_step + steps:
            self._append()
        return self._first, self._sums, self._weighted_sums

    def _append(self) -> None:
        known = self._first + len(self._sums) - 1
        fresh = self._fresh(min(self._MOST, max(self._FEWEST, known)))
        steps = np.arange(known, known + len(fresh))
        for sums, added in (self._sums, fresh), (self._weighted_sums, fresh * steps):
            sums += _continued(sums[-1], np.cumsum(added))

    def _fresh(self, steps: int) -> npt.NDArray[np.int64]:
        if not self._correlation:
            return self._rng.choice(self._sample, steps)
        from scipy.special import ndtr

        rho = self._correlation
        shocks = math.sqrt(1 - rho**2) * self._rng.standard_normal(steps)
        scores = list(accumulate(shocks.tolist(), lambda z, e: rho * z + e, initial=self._score))
        self._score = scores[-1]
        ranks = ndtr(np.array(scores[1:])) * len(self._sample)
        return np.asarray(self._sample[ranks.astype(np.int64).clip(0, len(self._sample) - 1)])
