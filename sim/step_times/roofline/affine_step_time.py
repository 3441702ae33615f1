"""Step times of decodes that attend to all of their context: affine in it.

The time that drafting adds to the steps of a target.
"""

from collections.abc import Callable
from collections.abc import Sequence as Listed
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any, ClassVar

import numpy as np

from servetwin.policies.batch import Batch, BatchShape
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.sim.step_times.roofline.deployment import Deployment, Drafting
from servetwin.sim.step_times.roofline.operators import IntArray
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.step_times.roofline.step_cost import StepCost
from servetwin.sim.step_times.step_time import UNIT_BITS, AffineStepTime, Remembered, to_units

_HERE = np.zeros(1, np.int64)


class ByStart:
    """A function of the first positions of chunks, not below 0, that remembers its values."""

    def __init__(self, function: Callable[[int], int]) -> None:
        self._function = function
        self._known: IntArray = np.full(1024, -1, np.int64)

    def __call__(self, base: int, offsets: IntArray) -> IntArray:
        """Return the values at ``base`` + ``offsets``; the last offset is the largest."""
        if not len(offsets):
            return offsets
        if base + offsets[-1] >= len(self._known):
            more = np.full(base + int(offsets[-1]) + 1, -1, np.int64)
            self._known = np.concatenate((self._known, more))
        known = self._known[base:]
        values: IntArray = known[offsets]
        if values[values.argmin()] < 0:
            for offset in set(offsets[values < 0].tolist()):
                known[offset] = self._function(base + offset)
            values = known[offsets]
        return values

    def at(self, start: int) -> int:
        """Return the value at one of them."""
        return int(self(start, _HERE)[0])


# (first position, rows) of each.
Chunks = tuple[tuple[int, int], ...]


class DraftTime:
    """The time of a drafter; ``model`` has the step times of the model that drafts.

    ``expected_units`` are those of a step by its decodes on average, without their contexts.
    """

    def __init__(
        self, drafting: Drafting, model: AffineStepTime, expected_units: Callable[[float], int]
    ) -> None:
        self._drafting = drafting
        # Probability of each step that a sequence still drafts in it.
        self.shares: tuple[float, ...] = drafting.step_shares or (1,) * len(drafting.step_rows)
        self._model, self._expected_units = model, expected_units
        self._drafted = Remembered(self._of_drafted)
        self._readings = Remembered(self._of_prompts)
        places = range(1, len(self.shares) + 1)
        self._seen_at = [partial(self._seen_by_one, place) for place in places]

    @property
    def is_line(self) -> bool:
        """Return whether a pass is longer by as many units for each token of context."""
        drafting = self._drafting
        certain = all(share == 1 for share in self.shares)
        return drafting.placement == "device" and drafting.context_tokens is None and certain

    def beside(
        self, units: list[int], slack: int, prompts: Chunks, drafted: int, seen: Listed[float]
    ) -> list[int]:
        """Return the units of passes whose target takes ``units``: the sums, or the longer parts.

        The target waits ``slack`` of them for its weights; drafting that needs no stream of its own
        hides there. The drafter sees as many tokens in each pass as ``seen`` says.
        """
        reading = self._reading_units(prompts)
        apart, per_token = self._drafted[drafted] if drafted else (0, 0)
        drafting = [round(apart + per_token * tokens) for tokens in seen]
        if self._drafting.is_part or not self._drafting.resident:
            slack = 0
        pairs = zip(units, drafting, strict=True)
        match self._drafting.placement:
            case "device":
                return [target + max(0, reading + draft - slack) for target, draft in pairs]
            case "other":
                return [max(target, reading) + max(0, draft - slack) for target, draft in pairs]
            case _:
                return [max(target, reading + draft) for target, draft in pairs]

    def seen(self, group: DraftedDecodes, steps: int) -> list[float]:
        """Return the tokens that all drafting steps of each of the next passes attend to.

        Where nothing limits what drafting reads, the tokens that it drafts itself are left out.
        """
        if self._drafting.context_tokens is None:
            drafts = sum(self.shares)
            return [drafts * context for context in group.context_sums(steps)]
        places = [group.sums(tokens_at, steps) for tokens_at in self._seen_at]
        return [self._expected(tokens) for tokens in zip(*places, strict=True)]

    def seen_from(self, starts: IntArray) -> float:
        """Return ``seen`` of one pass of decodes, by their first positions."""
        if self._drafting.context_tokens is None:
            return sum(self.shares) * int(starts.sum())
        return self._expected([int(tokens_at(0, starts).sum()) for tokens_at in self._seen_at])

    def _seen_by_one(self, place: int, base: int, offsets: IntArray) -> IntArray:
        """Return the tokens that drafting step ``place`` attends to, at most the limit."""
        limit = self._drafting.context_tokens
        assert limit is not None
        return np.minimum(offsets + (base + place), limit)

    def _expected(self, tokens: Listed[int]) -> float:
        """Return the expected tokens of all drafting steps, by those of each if it is run."""
        return sum(share * count for share, count in zip(self.shares, tokens, strict=True))

    def _reading_units(self, prompts: Chunks) -> int:
        """Return the units in which a draft model of its own computes the prompts too."""
        if self._drafting.is_part or not prompts:
            return 0
        return self._readings[prompts] if len(prompts) == 1 else self._of_prompts(prompts)

    def _of_prompts(self, prompts: Chunks) -> int:
        return self._model.affine(BatchShape(0, 0, 0, prompts))[0]

    def _of_drafted(self, drafted: int) -> tuple[int, int]:
        """Return the units of drafting for ``drafted`` decodes: fixed, and per token seen.

        Where nothing limits what drafting reads, its own drafts are in the fixed part.
        """
        per_token, steps = self._model.decodes[drafted][1], self._drafting.step_rows
        pairs = zip(steps, self.shares, strict=True)
        units = sum(self._step_units(drafted * rows, share) for rows, share in pairs)
        if self._drafting.context_tokens is None:
            drafted_before = sum(share * place for place, share in enumerate(self.shares, start=1))
            units += round(per_token * drafted * drafted_before)
        return units, per_token

    def _step_units(self, rows: int, share: float) -> int:
        """Return the expected units of a step in which each of ``rows`` takes part with ``share``.

        It is run where any does.
        """
        if share == 1:
            return self._model.decodes[rows][0]
        runs = 1 - (1 - share) ** rows
        return round(runs * self._expected_units(rows * share / runs)) if runs else 0


# (rows, rows that need logits, whether prompts are among them).
Rows = tuple[float, float, bool]


def _units(seconds: Callable[..., float], arguments: tuple[Any, ...]) -> int:
    return to_units(seconds(*arguments))


class RooflineStepTime(AffineStepTime):
    """Affine in the context: attention over all of it, whatever the occupancy."""

    unit_bits: ClassVar[int] = UNIT_BITS

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        cost = self.cost = StepCost(deployment)
        self.decodes = Remembered(self._of_decodes)
        self._states = Remembered(self._of_states)
        self._rows: Remembered[Rows, int] = Remembered(partial(_units, cost.rows_s))
        self._slack: Remembered[Rows, int] = Remembered(partial(_units, cost.stream_slack_s))
        chunk_s = partial(_units, cost.attention.chunk_s)
        self._chunks: Remembered[tuple[int, int], int] = Remembered(chunk_s)
        self._verifications = Remembered(self._of_verification)
        self._crowding_matters = deployment.kernels.occupancy != "full"
        self._is_spread = deployment.parallel.pipeline > 1 or deployment.parallel.groups > 1
        drafting = deployment.drafting
        self._drafts: DraftTime | None = None
        if drafting is not None:
            model = _draft_model(deployment, drafting)
            self._drafts = DraftTime(drafting, model, model.expected_units)
        self._pass_lines = Remembered(self._of_passes)
        self._streams = deployment.offload.resident_weights < 1
        lines = not self._drafts or (self._drafts.is_line and not self._streams)
        self._passes_are_lines = lines and not self._is_spread
        self._verified_share = drafting.verified_share if drafting else 1.0
        self._swap_s = deployment.kv_bytes_per_token() / deployment.host_bytes_per_s

    def affine(self, shape: BatchShape) -> tuple[int, int]:
        """Return (first step, growth per step) in units of 2^-48 s."""
        decodes, context, growing, chunks, swapped, drafted, _, _ = shape
        if not chunks and not swapped:
            units, slope = self.decodes[decodes]
            return units + slope * context, slope * growing
        slope = self.decodes[decodes][1] if decodes else 0
        if drafted:
            return self._units_with_drafts(shape), slope * growing
        units, attention = self._apart(shape, 0)
        units += self._shared(attention, shape)
        if self._drafts:
            (units,) = self._drafts.beside([units], self._slack_of(shape, 0), chunks, 0, [0])
        return units + slope * context + to_units(self._swap_s * swapped), slope * growing

    def pass_units(self, batch: Batch, steps: int) -> list[int]:
        """Return the units of each of the next passes of a batch with ``drafted`` decodes."""
        group = batch.lockstep
        assert isinstance(group, DraftedDecodes)
        drafted, rows = group.size, group.rows
        if not self._passes_are_lines:
            attention = group.sums(self._verifications[rows, self._together(drafted), 0], steps)
            draft_tokens = self._drafts.seen(group, steps) if self._drafts else []
            return self._passes(batch.beside_drafts(), drafted * rows, attention, draft_tokens)
        apart, by_start = self._pass_lines[drafted, rows]
        if batch.chunks or batch.swapped_tokens:
            (apart,) = self._passes(batch.beside_drafts(), drafted * rows, [0], [0])
        return [apart + units for units in group.sums(by_start, steps)]

    def _of_passes(self, passes: tuple[int, int]) -> tuple[int, ByStart]:
        """Return the units of a pass of ``drafted`` decodes of ``rows`` rows each.

        The fixed part, and what each decode adds by the first position of its pass.
        """
        drafted, rows = passes
        beside = BatchShape(0, 0, 0, (), 0, drafted)
        per_token = len(self._drafts.shares) if self._drafts else 0
        apart, more = self._passes(beside, drafted * rows, [0, 0], [0, per_token])
        return apart, self._verifications[rows, self._together(drafted), more - apart]

    def _units_with_drafts(self, shape: BatchShape) -> int:
        """Return the units of a step whose first chunks verify drafts."""
        drafted, chunks = shape.drafted_chunks, shape.prefill_chunks
        together = self._together(drafted)
        attention = sum(self._verifications[n, together, 0].at(s) for s, n in chunks[:drafted])
        starts = np.array([start for start, _ in chunks[:drafted]])
        draft_tokens = [self._drafts.seen_from(starts)] if self._drafts else []
        beside = shape._replace(prefill_chunks=chunks[drafted:])
        verified = sum(n for _, n in chunks[:drafted])
        (units,) = self._passes(beside, verified, [attention], draft_tokens)
        return units

    def _passes(
        self, beside: BatchShape, verified: int, attention: list[int], seen: Listed[float]
    ) -> list[int]:
        """Return the units of passes with ``verified`` rows; ``beside`` is what they run beside.

        For each pass, ``attention`` has the units to verify, ``seen`` the tokens that drafts see.
        """
        decodes, context, _, prompts, swapped, drafted, _, _ = beside
        apart, reading = self._apart(beside, verified)
        if self._is_spread:
            units = [apart + self._shared(reading + one, beside) for one in attention]
        else:
            apart += reading
            units = [apart + one for one in attention]
        if self._drafts:
            slack = self._slack_of(beside, verified)
            units = self._drafts.beside(units, slack, prompts, drafted, seen)
        if not decodes and not swapped:
            return units
        slope = self.decodes[decodes][1] if decodes else 0
        more = slope * context + to_units(self._swap_s * swapped)
        return [one + more for one in units]

    def _apart(self, beside: BatchShape, verified: int) -> tuple[int, int]:
        """Return the units of rows and states, and those of the attention of prompts."""
        decodes, rows = beside.decode_sequences, self._computed(beside, verified)
        attention = 0
        for chunk in beside.prefill_chunks:
            attention += self._chunks[chunk]
        units = self._rows[rows] if rows[0] else 0
        return units + (self._states[decodes] if decodes else 0), attention

    def _computed(self, beside: BatchShape, verified: int) -> Rows:
        """Return the rows of a pass; of the ``verified`` ones, as many as are made on average."""
        prompts = beside.prefill_chunks
        rows: float = beside.decode_sequences + verified
        if self._verified_share < 1:
            rows -= verified * (1 - self._verified_share)
        logits = rows + len(prompts)
        for chunk in prompts:
            rows += chunk[1]
        return rows, logits, bool(prompts)

    def _slack_of(self, beside: BatchShape, verified: int) -> int:
        """Return the units in which the device waits for weights that are streamed."""
        return self._slack[self._computed(beside, verified)] if self._streams else 0

    def _shared(self, attention: int, beside: BatchShape) -> int:
        """Return the units of attention on the path of a step, where devices share a batch."""
        if not self._is_spread:
            return attention
        prompts = beside.prefill_chunks
        sequences = beside.decode_sequences + beside.drafted_chunks + len(prompts)
        return round(attention * self.deployment.parallel.path_share(sequences, bool(prompts)))

    def _together(self, drafted: int) -> int:
        return drafted if self._crowding_matters else 1

    def _of_decodes(self, decodes: int) -> tuple[int, int]:
        units = self._rows[decodes, decodes, False] + self._states[decodes]
        return units, to_units(self.cost.attention.context_s(decodes))

    def _of_states(self, decodes: int) -> int:
        return to_units(self.cost.attention.state_s(decodes))

    def _of_verification(self, passes: tuple[int, int, int]) -> ByStart:
        """Return the units of attention in a pass, by its rows and the decodes beside it.

        The last number is what else a pass takes per first position.
        """
        rows, together, slope = passes
        rows = ceil(rows * self._verified_share)
        verification_s = self.cost.attention.verification_s
        return ByStart(lambda s: to_units(verification_s(s, rows, together)) + slope * s)

    def expected_units(self, decodes: float) -> int:
        """Return the units of a step of ``decodes`` on average, without their contexts."""
        return self._rows[decodes, decodes, False] + to_units(self.cost.attention.state_s(decodes))


def _draft_model(deployment: Deployment, drafting: Drafting) -> RooflineStepTime:
    """Return the step times of the draft model; one of its own runs on a single device."""
    is_part, offload = drafting.is_part, deployment.offload
    if not is_part:
        offload = replace(offload, resident_kv=1.0, resident_weights=float(drafting.resident))
    return RooflineStepTime(
        replace(
            deployment,
            model=drafting.model,
            hardware=drafting.hardware or deployment.hardware,
            efficiency=replace(deployment.efficiency, overhead_s=0.0),
            parallel=deployment.parallel if is_part else Parallel(),
            prefill=drafting.form or deployment.prefill,
            decode=drafting.form or deployment.decode,
            offload=offload,
            drafting=None,
            early_exit=None,
        )
    )
