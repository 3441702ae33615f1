"""Decodes that verify drafts: several tokens of a sequence may come out of one pass.

A decode computes its own row and those of ``draft_rows`` drafted tokens; the accepted ones and one
more come out (Leviathan et al., ICML 2023; Chen et al., 2023). Trees, blocks of parallel heads and
refined diffusion blocks are the same to a scheduler: so many rows, and a number of tokens that is
known afterwards. With ``prompt_token`` off the pass of a prompt yields no token: the first ones are
those of the first block (diffusion).
"""

from collections.abc import Iterator
from collections.abc import Sequence as Listed
from contextlib import contextmanager
from dataclasses import replace

from policies.batch import Batch, verification
from policies.config import PolicyConfig
from policies.lockstep import Lockstep
from policies.protocols import KVMemory, Refusal
from policies.schedulers.continuous import ContinuousBatching
from policies.sequence import Sequence
from workloads.errors import PolicyError
from workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class SpeculativeBatching(ContinuousBatching):
    """Continuous batching whose decodes are chunks of 1 + ``draft_rows`` rows, the first in a step.

    The simulator or engine sets ``batch.emitted`` before it completes a step. Drafts are as many at
    the end of an answer as anywhere; what comes out beyond ``max_tokens`` is cut. Every sequence
    reserves its whole length and the rows of its last drafts, so nothing is ever preempted. Without
    drafts this is continuous batching with full admission.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, replace(config, admission="full"))
        self._drafts = config.draft_rows
        self._drafting = Drafting()
        self._last_rows = self._drafts
        """Positions behind an answer that its last pass may write."""
        if self._drafts:
            self._decodes = self._drafting
            self._rows_per_decode = 1 + self._drafts
            if not config.prompt_token:
                self._tokens_of_prompt = 0
                self._last_rows += 1

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or return why it is refused: its last drafts need room too."""
        if self._drafts:
            with self._room_for_drafts(seq):
                reason = self.memory.refusal(seq)
            if reason:
                why = f"{reason}; {self._last_rows} of its positions are for drafts"
                return Refusal("too_long", why)
        return super().add(seq)

    def schedule(self, now_s: float) -> Batch | None:
        """Return the decodes with their drafts, then prompts as in continuous batching."""
        batch = super().schedule(now_s)
        if batch is not None and self._drafts:
            rows = 1 + self._drafts
            passes = [verification(seq, rows) for seq in self._decodes]
            batch.chunks = [*passes, *batch.chunks]
            batch.drafted = len(passes)
            batch.lockstep = None
            batch.prompt_token = self._tokens_of_prompt > 0
        return batch

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance every sequence, those with drafts by ``batch.emitted``; return the finished.

        Raises ``PolicyError`` where ``batch.emitted`` does not say what came of the drafts.
        """
        if batch.drafted:
            _check_emitted(batch)
            self._drafting.emitted = batch.emitted
            batch = Batch(batch.chunks[batch.drafted :], self._decodes)
        return super().complete(batch, steps)

    def _may_join(self, head: Sequence, left: int, batch: Batch) -> bool:
        if head.computed_tokens:  # it decodes at once
            return left > self._drafts
        return super()._may_join(head, left, batch)

    def _admit(self, seq: Sequence, batch: Batch, left: int, now_s: float) -> bool:
        with self._room_for_drafts(seq):
            return super()._admit(seq, batch, left, now_s)

    def _share(self, seq: Sequence, child: Sequence) -> bool:
        with self._room_for_drafts(seq):
            return super()._share(seq, child)

    @contextmanager
    def _room_for_drafts(self, seq: Sequence) -> Iterator[None]:
        """Let the memory see an answer that is longer by the drafts of its last pass."""
        seq.max_tokens += self._last_rows
        try:
            yield
        finally:
            seq.max_tokens -= self._last_rows


class Drafting(Lockstep):
    """Decodes that advance by ``emitted`` tokens each: the group's own counter stands still."""

    __slots__ = ("emitted",)

    def __init__(self) -> None:
        super().__init__(block_tokens=1)
        self.emitted: Listed[int] = ()
        """Tokens of the pass, one number per member in the order of joining."""

    def join(self, seq: Sequence) -> None:
        """Add a sequence whose prompt is computed."""
        self._members[seq] = 0
        self.size += 1
        seq.lockstep = self
        seq.joined_step = 0

    def leave(self, seq: Sequence) -> None:
        """Take a member out."""
        del self._members[seq]
        self.size -= 1
        seq.lockstep = None

    def advance(self, steps: int) -> list[Sequence]:
        """Record one pass; take out and return the members that ended."""
        ended = []
        for seq, emitted in zip(self._members, self.emitted, strict=True):
            tokens = min(emitted, seq.max_tokens - seq.base_generated_tokens)
            seq.base_computed_tokens += tokens
            seq.base_generated_tokens = generated = seq.base_generated_tokens + tokens
            if seq.stopped or generated >= seq.max_tokens:
                ended.append(seq)
        for seq in ended:
            self.leave(seq)
        return ended

    def steps_to_end(self) -> int:
        """Return 0: no pass is known to repeat."""
        return 0


def _check_emitted(batch: Batch) -> None:
    drafted, emitted = batch.chunks[: batch.drafted], batch.emitted
    if len(emitted) != len(drafted):
        raise PolicyError(
            f"{len(drafted)} sequences verified drafts, but it is said of {len(emitted)} how many "
            "tokens came out; the step loop must set batch.emitted (in a simulation, a "
            "sim.step_times.acceptance.Verifier)"
        )
    if min(emitted) >= 0 and max(emitted) <= drafted[0].rows:  # all have as many
        return
    for entry, tokens in zip(drafted, emitted, strict=True):
        if not 0 <= tokens <= entry.rows:
            raise PolicyError(
                f"sequence {entry.seq.request_id!r}: {tokens} tokens cannot come out of a pass of "
                f"{entry.rows} rows; it must be from 0 to {entry.rows}"
            )
