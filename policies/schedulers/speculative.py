"""Decodes that verify drafts: several tokens of a sequence may come out of one pass.

A decode computes its own row and those of ``draft_rows`` drafted tokens; the accepted ones and one
more come out (Leviathan et al., ICML 2023; Chen et al., 2023). Trees, blocks of parallel heads and
refined diffusion blocks are the same to a scheduler: so many rows, and a number of tokens that is
known afterwards. With ``prompt_token`` off the pass of a prompt yields no token: the first ones are
those of the first block (diffusion).
"""

from dataclasses import replace

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.protocols import KVMemory, Refusal
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class SpeculativeBatching(ContinuousBatching):
    """Continuous batching whose decodes are chunks of 1 + ``draft_rows`` rows, the first in a step.

    The simulator or engine sets what comes of the drafts (``DraftedDecodes.set_schedule``); nothing
    here decides by that. Drafts are as many at the end of an answer as anywhere; what comes out
    beyond ``max_tokens`` is cut. Every sequence reserves its whole length and the rows of its last
    drafts, so nothing is ever preempted. Without drafts this is continuous batching with full
    admission.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, replace(config, admission="full"))
        self._drafts = config.draft_rows
        self._last_rows = self._drafts
        """Positions behind an answer that its last pass may write."""
        if self._drafts:
            self._decodes = DraftedDecodes(1 + self._drafts)
            self._decodes_only = Batch((), self._decodes)
            self._last_rows += not config.prompt_token

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or return why it is refused: its last drafts need room too."""
        if self._drafts:
            seq.max_tokens += self._last_rows
            reason = self.memory.refusal(seq)
            seq.max_tokens -= self._last_rows
            if reason:
                why = f"{reason}; {self._last_rows} of its positions are for drafts"
                return Refusal("too_long", why)
        return super().add(seq)

    def schedule(self, now_s: float) -> Batch | None:
        """Return the decodes with their drafts, and prompts as in continuous batching."""
        if not self._drafts:
            return super().schedule(now_s)
        batch: Batch | None = self._decodes_only
        if self._waiting.size or self._prefilling:
            batch = super().schedule(now_s)
        elif not self._decodes.size:
            return None
        if batch is not None:
            batch.drafted = self._decodes.size
            batch.prompt_token = self._config.prompt_token
        return batch

    def repeatable_steps(self, batch: Batch) -> int:
        """Return the passes until a decode ends; 1 with a prompt."""
        if self._drafts and batch is self._decodes_only:
            return self._decodes.steps_to_end()
        return super().repeatable_steps(batch)

    def _may_join(self, head: Sequence, left: int, batch: Batch) -> bool:
        if head.computed_tokens:  # it decodes at once
            return left > self._drafts
        return super()._may_join(head, left, batch)

    def _admit(self, seq: Sequence, batch: Batch, left: int, now_s: float) -> bool:
        seq.max_tokens += self._last_rows  # the memory sees a longer answer
        admitted = super()._admit(seq, batch, left, now_s)
        seq.max_tokens -= self._last_rows
        return admitted

    def _share(self, seq: Sequence, child: Sequence) -> bool:
        seq.max_tokens += self._last_rows
        shared = super()._share(seq, child)
        seq.max_tokens -= self._last_rows
        return shared
