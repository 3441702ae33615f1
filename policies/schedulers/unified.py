"""One movement for prompts and answers (vLLM V1): each sequence computes what it has not yet.

Sequences run in the order in which they were admitted, under one token budget. A prompt takes its
blocks chunk by chunk, so prompts and decodes compete for memory in that order too.
"""

from operator import attrgetter

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import GatedMemory, KVMemory
from servetwin.policies.schedulers.iteration_level import IterationBatching
from servetwin.policies.schedulers.preemption import choose_victim
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

_ADMISSION = attrgetter("admission_number")


@mypyc_attr(allow_interpreted_subclasses=True)
class UnifiedBatching(IterationBatching):
    """Every step has at most ``token_budget`` rows; none is admitted in a step that preempts.

    As long as there is memory for all that runs, the decodes grow together. Where there is not,
    each sequence takes its blocks in turn, and victims lose theirs. In a memory that gives no room
    chunk by chunk, prompts are reserved whole.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self._gate = config.full_prompt_gate
        self._long_prefill_tokens = config.long_prefill_tokens
        self._most_rows = 0
        """Rows of one sequence in this step at most."""
        self._admissions = 0
        self._chunk_memory = None
        self._chunks: GatedMemory | None = None
        if self._grows and isinstance(memory, GatedMemory):
            self._chunks = memory

    def schedule(self, now_s: float) -> Batch | None:
        """Return a step of the running sequences, and of the sequences that it admits.

        A step in which nothing runs, since its first sequences preempted themselves, takes no time:
        the next one is decided at once.
        """
        decodes, prefilling = self._decodes, self._prefilling
        if not (self._waiting.size or prefilling):
            if not decodes.size:
                return None
            if self._may_repeat():
                return self._decodes_only
        batch = Batch((), decodes)
        while not self._fill(batch, now_s):
            pass
        self._head_changed = self._limited is not None and self.enforce_limit()
        return batch if decodes.size or batch.chunks else None

    def _fill(self, batch: Batch, now_s: float) -> bool:
        """Decide a step; return whether something runs in it, or nothing can."""
        preempted = len(batch.preempted)
        self._most_rows = self._token_budget
        if self._long_prefill_tokens and (
            self._decodes.size + len(self._prefilling) + self._waiting.size > 1
        ):
            self._most_rows = self._long_prefill_tokens
        batch.one_row_prefills = self._one_row_prefills
        left = self._run(batch)
        if len(batch.preempted) == preempted or self._admits_after_preemption:
            if left > 0 and self._waiting.size:
                self._admit_prompts(batch, left, now_s)
            if len(batch.preempted) == preempted:
                return True
        return self._decodes.size > 0 or len(batch.chunks) > 0

    def _may_repeat(self) -> bool:
        """Return whether the decodes have memory for another step; note for how many steps."""
        repeats = self._decodes.steps_to_end()
        if self._grows:
            repeats = self.memory.repeatable_steps(self._decodes, repeats)
        self._decode_repeats = repeats
        return repeats > 0

    def _run(self, batch: Batch) -> int:
        """Give every running sequence its rows and its memory, in the order of admission.

        Returns the rows that are left.
        """
        decodes, chunks = self._decodes, self._chunks
        if chunks is None:
            if self._grows and decodes.size and not self.memory.grow(decodes, 1):
                self._make_room(batch)
        elif not self._has_room(chunks) or (decodes.size and not self.memory.grow(decodes, 1)):
            return self._run_in_turn(batch, chunks)
        left = self._token_budget - decodes.size
        for seq in self._prefilling:
            left -= self._add_chunk(batch, seq, left)
        return left

    def _has_room(self, memory: GatedMemory) -> bool:
        """Return whether there is memory for what every running sequence computes next."""
        decodes, prefilling = self._decodes, self._prefilling
        left = self._token_budget - decodes.size
        most_tokens = left + self.memory.block_tokens * (decodes.size + len(prefilling))
        if left >= 0 and most_tokens <= self.memory.free_tokens():
            return True  # each of them begins a block
        ends: list[tuple[Sequence, int]] = []
        for seq in prefilling:
            tokens = min(_missing_tokens(seq), left, self._most_rows)
            left -= tokens
            ends.append((seq, seq.base_computed_tokens + tokens))
        return memory.has_room(decodes, ends)

    def _run_in_turn(self, batch: Batch, memory: GatedMemory) -> int:
        """Let each sequence take its blocks in turn; where there are none, a victim loses its own.

        A sequence that is its own victim ends the step for the sequences behind it. Returns the
        rows that are left.
        """
        running, decodes = self._prefilling, self._decodes
        for seq in list(decodes):
            decodes.leave(seq)
            running.append(seq)
        running.sort(key=_ADMISSION)
        rows: dict[Sequence, int] = {}
        left = self._token_budget
        while len(rows) < len(running) and left > 0:
            seq = running[len(rows)]
            computed, missing = seq.base_computed_tokens, _missing_tokens(seq)
            tokens = min(missing, left, self._most_rows)
            victim: Sequence | None = None
            while victim is not seq and not memory.extend(seq, computed + tokens):
                victim = self._choose_victim()
                self._preempt(victim, batch)
                left += rows.pop(victim, 0)
            if victim is seq:
                break
            if self._shares:
                self.memory.commit(seq, computed + tokens)
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
                batch.add_chunk(seq, tokens)
        if decodes.size:
            decodes.granted_step = decodes.steps + 1

    def _choose_victim(self) -> Sequence:
        """Return the sequence to preempt: of equal priorities the one that arrived last."""
        if self._victim == "lowest-priority":
            return min(self._prefilling, key=lambda seq: (seq.priority, -seq.arrival_number))
        return choose_victim(self._victim, self._decodes, self._prefilling)

    def _is_decode(self, seq: Sequence) -> bool:
        """Return whether a sequence computes one row and has its first token."""
        if seq.lockstep is not None:
            return True
        return seq.base_generated_tokens > 0 and _missing_tokens(seq) == 1

    def _admit_prompts(self, batch: Batch, left: int, now_s: float) -> None:
        """Admit what waits, as far as slots, the rows left of the budget and memory allow."""
        waiting, prefilling = self._waiting, self._prefilling
        while waiting.size and left > 0 and self._has_slot():
            head = waiting.head()
            if head is None or not self._admit(head, batch, left, now_s):
                return
            self._number(head)
            if head.lockstep is not None:
                left -= 1
            elif prefilling and prefilling[-1] is head:
                left -= self._add_chunk(batch, head, left)

    def _reserve(self, seq: Sequence, cached_tokens: int, left: int) -> bool:
        if self._chunks is None:
            return super()._reserve(seq, cached_tokens, left)
        total = seq.prompt_tokens + seq.base_generated_tokens
        end = min(total, cached_tokens + min(left, self._most_rows))
        return self._chunks.reserve_part(seq, end, total if self._gate else end)

    def _add_chunk(self, batch: Batch, seq: Sequence, limit: int) -> int:
        if limit <= 0:
            return 0
        tokens = batch.add_chunk(seq, limit if limit < self._most_rows else self._most_rows)
        end = seq.base_computed_tokens + tokens
        if self._chunks is not None:
            held = self._chunks.extend(seq, end)
            assert held, "there was room for every running sequence"
        if self._shares:
            self.memory.commit(seq, end)
        return tokens

    def _share(self, seq: Sequence, child: Sequence) -> bool:
        self._number(child)
        return super()._share(seq, child)

    def _number(self, seq: Sequence) -> None:
        self._admissions = seq.admission_number = self._admissions + 1

    def _in_order_of_release(self, finished: list[Sequence]) -> list[Sequence]:
        return sorted(finished, key=_ADMISSION)


def _missing_tokens(seq: Sequence) -> int:
    """Return the positions that a sequence outside a lockstep group has not computed."""
    return seq.prompt_tokens + seq.base_generated_tokens - seq.base_computed_tokens
