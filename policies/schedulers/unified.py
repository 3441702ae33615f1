"""One movement for prompts and answers (vLLM V1): each sequence computes what it has not yet.

Sequences run in the order in which they were admitted, under one token budget. A prompt takes its
blocks chunk by chunk, so prompts and decodes compete for memory in that order too.
"""

from operator import attrgetter

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import GatedMemory, KVMemory
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

_ADMISSION = attrgetter("admission_number")


def _rank(seq: Sequence) -> tuple[int, int]:
    """Return the rank of a victim; the answers to one prompt arrived together."""
    first = seq if seq.group is None else seq.group.first
    return seq.priority, -first.arrival_number


@mypyc_attr(allow_interpreted_subclasses=True)
class UnifiedBatching(ContinuousBatching):
    """Every step has at most ``token_budget`` rows; none is admitted in a step that preempts.

    As long as there is memory for all that runs, the decodes grow together. Where there is not,
    each sequence takes its blocks in turn, and victims lose theirs. In a memory that gives no room
    chunk by chunk, prompts are reserved whole.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self._most_rows = self._token_budget
        """Rows of one sequence in this step at most."""
        self._chunk_memory = None
        self._chunks: GatedMemory | None = None
        self._names_answers = False
        """Whether a prompt may repeat an answer that a prefix cache keeps."""
        if self._grows and isinstance(memory, GatedMemory):
            self._chunks = memory

    def _decide(self, batch: Batch, now_s: float) -> None:
        """Fill a batch with the running sequences, and with those that it admits.

        A step in which nothing runs, since its first sequences preempted themselves, takes no time:
        the next one is decided at once.
        """
        chunks, decodes = self._chunks, self._decodes
        runs = False
        while not runs:
            if batch.preempted:
                self._settle()
            preempted = len(batch.preempted)
            self._set_most_rows()
            grows = decodes.size > 0 and self._grows
            if chunks is None:
                if grows and not self.memory.grow(decodes, 1):
                    self._make_room(batch)
                left = self._continue_prompts(batch)
            elif self._has_room(chunks) and (not grows or self.memory.grow(decodes, 1)):
                left = self._continue_prompts(batch)
            else:
                left = self._run_in_turn(batch, chunks)
            runs = len(batch.preempted) == preempted
            if runs or self._config.admit_after_preemption:
                self._admit_waiting(batch, left, now_s)
            runs = runs or decodes.size > 0 or len(batch.chunks) > 0

    def _set_most_rows(self) -> None:
        rows = self._config.long_prefill_tokens
        if rows:
            present = self._decodes.size + len(self._prefilling) + self._waiting.size
            self._most_rows = rows if present > 1 else self._token_budget

    def _has_room(self, memory: GatedMemory) -> bool:
        """Return whether there is memory for what every running sequence computes next."""
        decodes, prefilling = self._decodes, self._prefilling
        left = self._token_budget - decodes.size
        most_tokens = left + self.memory.block_tokens * (decodes.size + len(prefilling))
        if left >= 0 and most_tokens <= self.memory.free_tokens():
            return True  # each of them begins a block
        ends: list[tuple[Sequence, int]] = []
        for seq in prefilling:
            tokens = self._rows(seq, left)
            left -= tokens
            ends.append((seq, seq.base_computed_tokens + tokens))
        return memory.has_room(decodes, ends)

    def _settle(self) -> None:
        """Learn what came of the steps that have run: here, ``complete`` has done so."""

    def _rows(self, seq: Sequence, left: int) -> int:
        """Return the rows of a running sequence outside the lockstep, at most ``left``."""
        return min(seq.missing_tokens, left, self._most_rows)

    def _compute(self, batch: Batch, seq: Sequence, tokens: int) -> None:
        """Let a step compute the next positions of a sequence outside the lockstep."""
        batch.add_chunk(seq, tokens)

    def _commit(self, seq: Sequence, end: int) -> None:
        if self._shares:
            self.memory.commit(seq, end)

    def _run_in_turn(self, batch: Batch, memory: GatedMemory) -> int:
        """Let each sequence take its blocks in turn; where there are none, a victim loses its own.

        A sequence that is its own victim ends the step for the sequences behind it. Returns the
        rows that are left.
        """
        batch.one_row_prefills = self._one_row_prefills
        running, decodes = self._prefilling, self._decodes
        if self._names_answers:
            self._commit_answers(0)
        for seq in list(decodes):
            decodes.leave(seq)
            running.append(seq)
        running.sort(key=_ADMISSION)
        rows: dict[Sequence, int] = {}
        left = self._token_budget
        while len(rows) < len(running) and left > 0:
            seq = running[len(rows)]
            computed = seq.base_computed_tokens
            tokens = self._rows(seq, left)
            victim: Sequence | None = None
            while victim is not seq and not memory.extend(seq, computed + tokens):
                victim = self._choose_victim()
                self._preempt(victim, batch)
                left += rows.pop(victim, 0)
            if victim is seq:
                break
            self._commit(seq, computed + tokens)
            rows[seq] = tokens
            left -= tokens
        self._add_rows(batch, rows)
        return left

    def _add_rows(self, batch: Batch, rows: dict[Sequence, int]) -> None:
        """Fill a batch with what each sequence computes; decodes advance together again."""
        decodes = self._decodes
        for seq, tokens in rows.items():
            if self._is_decode(seq):
                self._prefilling.remove(seq)
                decodes.join(seq)
            else:
                self._compute(batch, seq, tokens)
        if decodes.size:
            decodes.granted_step = decodes.steps + 1

    def _choose_victim(self) -> Sequence:
        """Return the sequence to preempt: of equal priorities the one that arrived last."""
        if self._config.victim == "lowest-priority":
            return min(self._prefilling, key=_rank)
        return super()._choose_victim()

    def _is_decode(self, seq: Sequence) -> bool:
        """Return whether a sequence computes one row and has its first token."""
        if seq.lockstep is not None:
            return True
        return seq.base_generated_tokens > 0 and seq.missing_tokens == 1

    def _may_join(self, head: Sequence, left: int, batch: Batch) -> bool:
        """Return whether a prompt may be split at what is left of the budget, or need not be."""
        if self._config.chunk_prompts:
            return True
        return min(head.total_tokens - self.memory.cached_prefix(head), self._most_rows) <= left

    def _continue_prompts(self, batch: Batch) -> int:
        """Compute the next parts of prompts; the decodes before them fill blocks first."""
        if self._names_answers:
            self._commit_answers(1)
        return super()._continue_prompts(batch)

    def _queue(self, seq: Sequence) -> None:
        self._names_answers |= self._shares and seq.names_answer
        super()._queue(seq)

    def _end(self, finished: list[Sequence]) -> None:
        if self._names_answers:
            self._commit_answers(0)
        super()._end(finished)

    def _commit_answers(self, coming: int) -> None:
        """Let others find the blocks that decodes have filled, and will with ``coming`` tokens.

        Of equal blocks the one that was filled first is found, so the longest come first.
        """
        block, filled = self.memory.block_tokens, list[tuple[int, Sequence]]()
        for seq in self._decodes:
            tokens = seq.computed_tokens + coming
            if seq.names_answer and tokens // block > seq.keyed_blocks:
                filled.append((tokens, seq))
        for tokens, seq in sorted(filled, key=lambda each: -each[0]):
            self.memory.commit(seq, tokens)

    def _reserve(self, seq: Sequence, cached_tokens: int, left: int) -> bool:
        if self._chunks is None:
            return super()._reserve(seq, cached_tokens, left)
        total = seq.prompt_tokens + seq.base_generated_tokens
        end = min(total, cached_tokens + min(left, self._most_rows))
        gate = total if self._config.full_prompt_gate else end
        return self._chunks.reserve_part(seq, end, gate)

    def _add_chunk(self, batch: Batch, seq: Sequence, limit: int) -> int:
        if limit <= 0:
            return 0
        tokens = self._rows(seq, limit)
        end = seq.base_computed_tokens + tokens
        if self._chunks is not None:
            room = self._chunks.extend(seq, end)
            assert room, "there was room for every running sequence"
        self._commit(seq, end)
        self._compute(batch, seq, tokens)
        return tokens

    def _in_order_of_release(self, finished: list[Sequence]) -> list[Sequence]:
        return sorted(finished, key=_ADMISSION)
