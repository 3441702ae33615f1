"""Decide a step before the tokens of the one before it are known (vLLM's asynchronous scheduling).

The device never waits for a decision: that for a step is made when the step before it begins. It
knows neither what arrives during that step nor what comes of it. So an ended sequence holds its
slot and its blocks for one step more. It has no row there if its length told the end; one that
stops earlier has one, which is computed in vain.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter

from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.config import PolicyConfig
from servetwin.policies.lockstep import NO_STEP, LastStep
from servetwin.policies.protocols import GatedMemory, KVMemory, Load
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.schedulers.unified import UnifiedBatching
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

_ADMISSION = attrgetter("admission_number")
_ONE_ROW = LastStep(1, 1)


@mypyc_attr(allow_interpreted_subclasses=True)
class DecidedAhead(UnifiedBatching):
    """Unified batching, asked for a step when it begins, that does not look at what came since.

    Ended sequences run on among ``prompts`` until the step that did not know of their end has
    run. An empty step takes no time: the next one is decided at once, and knows all.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self.takes_in_turn = True
        self._ended: list[Sequence] = []
        self._arrived: list[Sequence] = []
        # Of those that arrived, how many the next decision knows of.
        self._known = 0
        # Tells a memory that takes blocks back where the step under way begins a sequence.
        self._begin: Callable[[Sequence, int], object] = getattr(
            memory, "begin_step", lambda *_: None
        )
        # Last steps of sequences outside the lockstep, as far as they decode.
        self._unknown: dict[Sequence, LastStep] = getattr(self.decodes, "unknown", {})

    def schedule(self, now_s: float) -> Batch | None:
        """Return the next step, decided without what came since the one before began."""
        batch = super().schedule(now_s)
        if batch is None and (self._ended or self._arrived):
            self.settle()
            batch = super().schedule(now_s)
        self._known = len(self._arrived)
        return batch

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance every sequence of a batch that ran ``steps`` times; return the finished."""
        self.settle(self._known)
        chunks = batch.chunks if self.drafts else ()
        out = {e.seq: 1 + e.tokens - e.seq.missing_tokens for e in chunks if e.yields_token}
        ended = super().complete(batch, steps)
        for seq in self._ended:
            self._begin(seq, seq.base_computed_tokens - self._unknown.get(seq, _ONE_ROW).tokens)
        for seq, start, tokens, _, padding in batch.chunks:
            if tokens:
                self._begin(seq, start)
            if seq in out:
                self._unknown[seq] = LastStep(out[seq] + padding, out[seq])
        return ended

    def repeatable_steps(self, batch: Batch) -> int:
        """Return 1 where the step after the next knows more than the next one."""
        return 1 if self._ended or self._known else super().repeatable_steps(batch)

    def changes_batch(self, seq: Sequence) -> bool:
        """Return whether ``seq``, just added, may change the batch of the step after the next."""
        return bool(self._ended or self.config.queue_limit is not None or self.has_slot())

    def adapting(self) -> list[Sequence]:
        """Return the running sequences whose adapters a step needs: those that have a row."""
        return [seq for seq in self.holders() if not seq.finished or self.rows_of(seq, 1)]

    def load(self) -> Load:
        """Return (running sequences, waiting sequences, free KV tokens)."""
        running, waiting, free_tokens = super().load()
        return running, waiting + len(self._arrived), free_tokens

    def waiting(self) -> Iterable[Sequence]:
        """Return the waiting sequences, in no order, with those no decision knows of yet."""
        return [*self.queue, *self._arrived]

    def abort(self, request_id: str) -> Sequence | None:
        """Forget a request and free what it holds; None when it is not here."""
        for seq in [seq for seq in self._arrived if seq.request_id == request_id]:
            self._arrived.remove(seq)
            self._known = min(self._known, len(self._arrived))
            return seq
        self._ended = [seq for seq in self._ended if seq.request_id != request_id]
        return super().abort(request_id)

    def enqueue(self, seq: Sequence) -> None:
        """Let a sequence wait for the next decision that knows of it."""
        self._arrived.append(seq)

    def end(self, ended: list[Sequence]) -> list[Sequence]:
        """Let ended sequences hold what they have until the next step has run."""
        ended = sorted(ended, key=_ADMISSION)
        self._ended += ended
        self.prompts += ended
        self.prompts.sort(key=_ADMISSION)
        return ended

    def settle(self, arrived: int | None = None) -> None:
        """Release the sequences that have ended, and queue the first so many that have arrived.

        No step is under way that needs what the others have computed.
        """
        ended, self._ended = self._ended, []
        for seq in ended:
            self.prompts.remove(seq)
        if self.names_answers:
            super().commit_answers(0)
        self._unknown.clear()
        for seq in ended:
            super().commit(seq, seq.base_computed_tokens)
        ContinuousBatching.end(self, ended)
        for seq in self._arrived[:arrived]:
            super().enqueue(seq)
        del self._arrived[:arrived]
        for seq in self.prompts:
            self._begin(seq, seq.base_computed_tokens)

    def run_in_turn(self, batch: Batch, memory: GatedMemory) -> int:
        """Let each sequence take its blocks in turn; the cache knows a token less of decodes."""
        decodes = self.decodes
        if not self.drafts:
            self._unknown = dict.fromkeys(decodes, _ONE_ROW)
        for seq in decodes:
            if decodes.steps > seq.joined_step:
                self._begin(seq, decodes.known_tokens(seq) - 1)
        left = super().run_in_turn(batch, memory)
        if not self.drafts:
            self._unknown.clear()
        return left

    def rows_of(self, seq: Sequence, left: int) -> int:
        """Return the rows of a running sequence outside the lockstep, at most ``left``."""
        if self._ended and seq.finished:
            stopped = seq.stopped or seq.estimated_tokens > seq.max_tokens
            unforeseen = stopped or self._unknown.get(seq, NO_STEP).tokens > 1
            return min(self.decodes.rows * unforeseen, left)
        return super().rows_of(seq, left)

    def end_of(self, seq: Sequence, rows: int) -> int:
        """Return the positions that ``rows`` need, should all of the step before be right."""
        if not rows:
            return seq.base_computed_tokens
        last = self._unknown.get(seq, NO_STEP)
        return super().end_of(seq, rows) + last.rows - last.tokens

    def add_rows(self, batch: Batch, seq: Sequence, rows: int) -> None:
        """Let a step compute the next positions, or the dead rows of a sequence that stopped."""
        if not seq.finished:
            super().add_rows(batch, seq, rows)
        elif rows:
            dead_row = ScheduledSequence(seq, seq.base_computed_tokens, 0, False, rows)
            batch.chunks = (*batch.chunks, dead_row)

    def commit(self, seq: Sequence, end: int) -> None:
        """Let others find what is known of the first ``end`` positions."""
        if seq in self._unknown:
            super().commit(seq, min(end, seq.total_tokens - self._unknown[seq].tokens))
        elif not seq.finished:
            super().commit(seq, end)

    def commit_answers(self, coming: int) -> None:
        """Let others find the blocks that are known to be filled: a token less.

        Of a sequence that had no row in the last step all is known, unless it has ended.
        """
        super().commit_answers(coming - 1)
        for seq in [seq for seq in self.prompts if seq.names_answer]:
            unknown = self._unknown.get(seq, NO_STEP).tokens or seq.finished
            self.memory.commit(seq, seq.base_computed_tokens - unknown)

    def preempt(self, seq: Sequence, batch: Batch) -> None:
        """Take the memory of a running sequence; it waits again, unless it has ended."""
        if seq not in self._ended:
            last = self._unknown.pop(seq, NO_STEP)
            if self.gated_memory is not None and self.swap is None and last.tokens:
                self.gated_memory.extend(seq, seq.base_computed_tokens)  # it holds what it held
                seq.base_computed_tokens -= last.tokens
            super().preempt(seq, batch)
            return
        self._ended.remove(seq)
        self.take_out(seq)
        self.queue.served(seq)
        seq.preemptions += 1
        batch.preempted = [*batch.preempted, seq]

    def is_decode(self, seq: Sequence) -> bool:
        """Return whether a sequence that has not ended computes one row and has its first token."""
        return not seq.finished and super().is_decode(seq)
