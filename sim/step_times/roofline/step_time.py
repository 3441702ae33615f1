"""Roofline step times, as the simulator wants them.

Where the decode attention is linear in the context, the model is affine and runs of steps have a
closed form; with windows and occupancy they have one piece by piece. Life without a KV cache needs
every context.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import ldexp

import numpy as np
import numpy.typing as npt

from servetwin.policies.batch import Batch, BatchShape
from servetwin.policies.lockstep import Lockstep
from servetwin.sim.catalogue.layers import Attention
from servetwin.sim.step_times.piecewise import NEVER, RunPieces
from servetwin.sim.step_times.roofline.affine_step_time import RooflineStepTime
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.operators import visible
from servetwin.sim.step_times.roofline.step_cost import StepCost
from servetwin.sim.step_times.step_time import (
    TICK_BITS,
    AffineStepTime,
    FloatArray,
    Remembered,
    StepTime,
    shape_with_contexts,
    to_units,
)

# The bits by which a unit of ``ContextStepTime`` is longer than a tick: 2^-56 s.
_FINE_BITS = 8
# Units that 64 bits hold, of one group of layers beside others.
_MOST_UNITS = 1 << 60


def roofline_step_time(deployment: Deployment) -> StepTime:
    """Return the quickest exact model of a deployment."""
    if deployment.parallel.lockstep:
        return RankStepTime(deployment)
    if not deployment.kv_cache:
        return UncachedStepTime(deployment)
    if deployment.cascade:
        return CascadeStepTime(deployment)
    mixers = deployment.model.attentions()
    sees_a_part = any(one.resident_limit() is not None or one.dilation > 1 for one in mixers)
    if deployment.kernels.occupancy != "full" or sees_a_part:
        return ContextStepTime(deployment)
    return RooflineStepTime(deployment)


class RankStepTime:
    """One of the ranks that share experts, or all of them with a batch each (``group_seconds``).

    Attention, and whatever else depends on contexts, is that of a rank alone. The step of one rank
    finds the others without work: each has a dummy row.
    """

    def __init__(self, deployment: Deployment) -> None:
        parallel = replace(deployment.parallel, data=1, expert=1, lockstep=False)
        alone = replace(deployment, parallel=parallel)
        self._alone, self._alone_cost = roofline_step_time(alone), StepCost(alone)
        self._cost = StepCost(deployment)
        self._others = deployment.parallel.groups - 1
        self.wants_contexts = getattr(self._alone, "wants_contexts", False)

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the durations of ``steps`` repetitions beside ranks without work."""
        return self._rank_s(shape, steps, shape.rows + self._others)

    def group_seconds(self, shapes: Sequence[BatchShape], steps: int = 1) -> FloatArray:
        """Return the durations of ``steps`` repetitions, with the batch of each rank."""
        all_rows = sum(max(1, shape.rows) for shape in shapes)
        seconds: FloatArray = np.max(
            [self._rank_s(shape, steps, all_rows) for shape in shapes if shape.rows], axis=0
        )
        return seconds

    def _rank_s(self, shape: BatchShape, steps: int, all_rows: int) -> FloatArray:
        rows = shape.rows, shape.sequences, bool(shape.prefill_chunks)
        shared_s = self._cost.rank_rows_s(*rows, all_rows) - self._alone_cost.rows_s(*rows)
        return self._alone.seconds(shape, steps) + shared_s


class CascadeStepTime(AffineStepTime):
    """Two models share the device: every row is the small one's with a fixed probability.

    The weights of each are read while any row of the step needs it.
    """

    def __init__(self, deployment: Deployment) -> None:
        cascade = deployment.cascade
        assert cascade is not None
        large = replace(deployment, cascade=None)
        small = replace(large, model=cascade.small)
        share = cascade.small_share
        self._models = [(RooflineStepTime(d), s) for d, s in ((small, share), (large, 1 - share))]
        self._overhead_s = deployment.efficiency.overhead_s
        self.decodes = Remembered(self._of_decodes)

    def affine(self, shape: BatchShape) -> tuple[int, int]:
        """Return (first step, growth per step) in units of 2^-48 s."""
        slope = self.decodes[shape.decode_sequences][1] if shape.decode_sequences else 0
        rows, sequences = shape.rows, shape.sequences
        seconds = self._rows_s(rows, sequences, bool(shape.prefill_chunks))
        seconds += self._states_s(shape.decode_sequences)
        for model, share in self._models:
            chunks_s = sum(
                model.cost.attention.chunk_s(start, n) for start, n in shape.prefill_chunks
            )
            seconds += share * chunks_s * model.deployment.parallel.path_share(sequences, True)
        units = to_units(seconds) + slope * shape.decode_context_tokens
        return units, slope * shape.decode_growing

    def _of_decodes(self, decodes: int) -> tuple[int, int]:
        slope = sum(
            share * model.cost.attention.context_s(decodes) for model, share in self._models
        )
        seconds = self._rows_s(decodes, decodes, False) + self._states_s(decodes)
        return to_units(seconds), to_units(slope)

    def _states_s(self, decodes: int) -> float:
        if not decodes:
            return 0.0
        return sum(share * model.cost.attention.state_s(decodes) for model, share in self._models)

    def _rows_s(self, rows: int, sequences: int, has_prefill: bool) -> float:
        total = self._overhead_s
        for model, share in self._models:
            needed = 1 - (1 - share) ** sequences
            if needed:
                mine = share / needed
                model_s = model.cost.rows_s(rows * mine, sequences * mine, has_prefill)
                total += needed * (model_s - self._overhead_s)
        return total


class ContextStepTime(RunPieces):
    """Every context counts: windows, budgets, or a device that few heads do not fill.

    The time of a group of layers is linear in the tokens that the decodes see there, as long as
    their contexts are split into as many pieces. Its whole units are finer than the units of
    an affine model, since a layer takes few of these for a token.
    """

    wants_contexts = True
    unit_bits = _FINE_BITS

    def __init__(self, deployment: Deployment) -> None:
        self._affine = RooflineStepTime(deployment)
        self._attention = self._affine.cost.attention
        self._mixers = [group.mixer for group in deployment.model.layers]
        self._limits = [mixer.resident_limit() for mixer in self._mixers]
        self._is_dilated = any(isinstance(m, Attention) and m.dilation > 1 for m in self._mixers)
        self._lines = Remembered(self._line)

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the seconds of ``steps`` repetitions, each with the growing decodes one longer."""
        return self._units(shape, steps).astype(np.float64) * ldexp(1.0, _FINE_BITS - TICK_BITS)

    def pass_units(self, batch: Batch, steps: int) -> list[int]:
        """Return the units of each of the next passes of a batch with ``drafted`` decodes."""
        if batch.beside_drafts().decode_sequences:  # a prompt of one row
            shape = shape_with_contexts(batch)
            alone: list[int] = self._units(shape, 1).tolist()
            return alone
        return [
            units << RunPieces.unit_bits - _FINE_BITS
            for units in self._affine.pass_units(batch, steps)
        ]

    def run_pieces(self, batch: Batch, steps: int) -> list[tuple[int, int, int]]:
        """Return pieces that end where a decode fills its window, or contexts are split anew."""
        group, shape = batch.lockstep, batch.shape()
        decodes = 0 if group is None or batch.drafted else group.size
        if shape.decode_sequences != decodes or self._is_dilated:
            shape = shape_with_contexts(batch)
            return [(units, 0, 1) for units in self._units(shape, steps).tolist()]
        units, pieces, done = self._apart(shape), [], 0
        while done < steps:
            piece = (units, 0, steps - done)
            if group is not None and decodes:
                piece = self._with_attention(piece, group, done)
            pieces.append(piece)
            done += piece[2]
        return pieces

    def _with_attention(
        self, piece: tuple[int, int, int], group: Lockstep, done: int
    ) -> tuple[int, int, int]:
        """Return a piece with what the decodes take that have grown by ``done`` tokens."""
        units, slope, steps = piece
        decodes = group.size
        for place, limit in enumerate(self._limits):
            tokens, growth, holds = group.context_tokens + (1 + done) * decodes, decodes, NEVER
            if limit is not None:
                tokens, growth, holds = group.seen_tokens(limit, done)
            split, fits = self._split(tokens, growth, decodes)
            per_token, base = self._lines[place, decodes, split]
            units += per_token * tokens + base
            slope += per_token * growth
            steps = min(steps, holds, fits)
        return units, slope, steps

    def _units(self, shape: BatchShape, steps: int) -> npt.NDArray[np.int64]:
        """Return the units of ``steps`` repetitions, each context on its own."""
        decodes = shape.decode_sequences
        grows = np.arange(decodes) < shape.decode_growing
        contexts = np.array(shape.decode_contexts, np.int64) + np.arange(steps)[:, None] * grows
        units = np.full(steps, self._apart(shape), np.int64)
        for place, mixer in enumerate(self._mixers) if decodes else ():
            tokens = visible(mixer, contexts).sum(axis=1)
            splits = self._attention.splits(tokens, decodes)
            for split in np.unique(splits).tolist():
                per_token, base = self._lines[place, decodes, split]
                if per_token * int(tokens.max()) + base > _MOST_UNITS:
                    units, tokens = units.astype(object), tokens.astype(object)
                units += np.where(splits == split, per_token * tokens + base, 0)
        return units

    def _apart(self, shape: BatchShape) -> int:
        """Return the units of a step without the contexts of its decodes."""
        units, _ = self._affine.affine(shape)
        if shape.decode_sequences:
            units -= self._affine.decodes[shape.decode_sequences][1] * shape.decode_context_tokens
        return units << RunPieces.unit_bits - _FINE_BITS

    def _split(self, seen: int, growth: int, decodes: int) -> tuple[int, int]:
        """Return the pieces of each context, and for how many steps they stay as many."""
        size = self._attention.split_tokens(decodes)
        if size is None:
            return 1, NEVER
        splits = max(1, -(-seen // size))
        return splits, (splits * size - seen) // growth + 1 if growth else NEVER

    def _line(self, key: tuple[int, int, int]) -> tuple[int, int]:
        per_token_s, apart_s = self._attention.decode_line_s(*key)
        return _fine_units(per_token_s), _fine_units(apart_s)


def _fine_units(seconds: float) -> int:
    return round(ldexp(seconds, TICK_BITS - _FINE_BITS))


class UncachedStepTime:
    """Without a KV cache every token computes its whole context anew."""

    wants_contexts = True

    def __init__(self, deployment: Deployment) -> None:
        inner = roofline_step_time(replace(deployment, kv_cache=True))
        self._seconds = inner.seconds

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the seconds of ``steps`` repetitions of prompts as long as the contexts."""
        return np.array(list(map(partial(self._one_s, shape), range(steps))))

    def _one_s(self, shape: BatchShape, step: int) -> float:
        growing = shape.decode_growing
        contexts = (
            length + step * (place < growing) for place, length in enumerate(shape.decode_contexts)
        )
        anew = tuple((0, length) for length in contexts)
        prompts = tuple((0, start + rows) for start, rows in shape.prefill_chunks)
        return float(self._seconds(BatchShape(0, 0, 0, anew + prompts))[0])
