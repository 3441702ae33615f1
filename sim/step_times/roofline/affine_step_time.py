"""Step times of decodes that attend to all of their context: affine in it."""

from collections.abc import Sequence as Listed
from dataclasses import replace
from math import ceil
from typing import ClassVar

import numpy as np

from servetwin.policies.batch import Batch, BatchShape
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.sim.step_times.roofline.deployment import Deployment, Drafting
from servetwin.sim.step_times.roofline.draft_time import ByStart, DraftTime
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.step_times.roofline.step_cost import StepCost
from servetwin.sim.step_times.step_time import UNIT_BITS, AffineStepTime, Remembered, to_units

Rows = tuple[float, float, bool]
"""(rows, rows that need logits, whether prompts are among them)."""


class RooflineStepTime(AffineStepTime):
    """Affine in the context: attention over all of it, whatever the occupancy."""

    unit_bits: ClassVar[int] = UNIT_BITS

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.cost = StepCost(deployment)
        self.decodes = Remembered(self._of_decodes)
        self._states = Remembered(self._of_states)
        self._rows = Remembered(self._of_rows)
        self._slack = Remembered(self._of_slack)
        self._chunks = Remembered(self._of_chunk)
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

    def _of_chunk(self, chunk: tuple[int, int]) -> int:
        return to_units(self.cost.attention.chunk_s(*chunk))

    def _of_verification(self, passes: tuple[int, int, int]) -> ByStart:
        """Return the units of attention in a pass, by its rows and the decodes beside it.

        The last number is what else a pass takes per first position.
        """
        rows, together, slope = passes
        rows = ceil(rows * self._verified_share)
        verification_s = self.cost.attention.verification_s
        return ByStart(lambda s: to_units(verification_s(s, rows, together)) + slope * s)

    def _of_rows(self, rows: Rows) -> int:
        return to_units(self.cost.rows_s(*rows))

    def expected_units(self, decodes: float) -> int:
        """Return the units of a step of ``decodes`` on average, without their contexts."""
        return self._rows[decodes, decodes, False] + to_units(self.cost.attention.state_s(decodes))

    def _of_slack(self, rows: Rows) -> int:
        return to_units(self.cost.stream_slack_s(*rows))


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
