"""What all iteration-level schedulers share: the batch is decided anew each step (Orca, OSDI 2022).

Decodes come first, then prompts, as far as slots, the token budget and memory allow.
"""

from collections.abc import Iterable

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import ChunkMemory, KVMemory
from servetwin.policies.schedulers.preemption import PreemptiveScheduler, choose_victim
from servetwin.policies.schedulers.queueing import has_stable_head
from servetwin.policies.sequence import SampleGroup, Sequence
from servetwin.workloads.native_class import mypyc_attr


def peak_tokens(seqs: Iterable[Sequence]) -> int:
    """Return the positions that sequences hold at their peak, as far as their lengths are declared.

    The sequence with the fewest tokens left ends first. So memory peaks at the end of one of them,
    when it and all that have as many or more left are still there (LightLLM's admission).
    One that does not decode yet counts as if its prompt were computed and its next token out.
    """
    lengths = []
    for seq in seqs:
        generated = seq.generated_tokens + (seq.lockstep is None)
        lengths.append((seq.max_tokens - generated - 1, seq.prompt_tokens + generated))
    lengths.sort(reverse=True)
    held = peak = 0
    for place, (left, tokens) in enumerate(lengths, 1):
        held += tokens
        peak = max(peak, held + place * max(0, left))
    return peak


@mypyc_attr(allow_interpreted_subclasses=True)
class MacroSteps(PreemptiveScheduler):
    """Foresees the next steps of an iteration-level scheduler; decides nothing itself.

    Between two decisions a batch of decodes only repeats, each context one token longer. A
    simulator takes all these steps at once; the engine takes them one by one and gets the same
    batches.

    ``_head_changed`` says that enforcing the queue's limit may have changed which sequence is next.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self._head_may_change = not has_stable_head(self._waiting) or config.admission == "peak"
        """Whether the next in line may be another, or find room, after any step."""
        self._head_changed = False
        self._decodes_only = Batch((), self._decodes)
        self._decode_repeats = 0
        """How often ``_decodes_only`` repeats."""

    def repeatable_steps(self, batch: Batch) -> int:
        """Return the steps until a decode ends or a block is missing; 1 with a prompt."""
        if batch is self._decodes_only:
            return self._decode_repeats
        if batch.chunks or batch.preempted or batch.swapped_tokens:
            return 1
        if (
            self._waiting.size
            and (self._head_may_change or self._head_changed)
            and self._has_slot()
        ):
            return 1  # another sequence may be next: the cache changed, or some were given up
        return self._steps_of_decodes()

    def _steps_of_decodes(self) -> int:
        """Return the steps until a decode ends or a block is missing."""
        decodes = self._decodes
        limit = decodes.steps_to_end()
        if limit == 1 or not self._grows:
            return limit
        granted = decodes.granted_step - decodes.steps
        return granted + self.memory.repeatable_steps(decodes, limit - granted)

    def changes_batch(self, seq: Sequence) -> bool:
        """Return whether ``seq``, just added, is next and has a slot, or is one too many."""
        if self._limited is not None and self.over_limit():
            return True
        return self._has_slot() and self._waiting.head() is seq


@mypyc_attr(allow_interpreted_subclasses=True)
class IterationBatching(MacroSteps):
    """At most ``max_seqs`` sequences run; a subclass says which prompts join the decodes."""

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self._token_budget = config.token_budget
        self._rows_per_decode = 1
        self._tokens_of_prompt = 1
        self._shares = memory.shares_prefixes
        self._chunk_memory: ChunkMemory | None = None
        if config.prompt_blocks == "chunk" and not self._reserves_all:
            self._chunk_memory = memory if isinstance(memory, ChunkMemory) else None
        self._forked = False

    @property
    def _admits_after_preemption(self) -> bool:
        return self._rules.admit_after_preemption

    def schedule(self, now_s: float) -> Batch | None:
        """Return the decodes, and the prompts that may join them."""
        decodes = self._decodes
        joining = self._waiting.size or self._prefilling
        if not joining:
            if not decodes.size:
                return None
            repeats = decodes.steps_to_end()
            if self._grows:
                repeats = self.memory.repeatable_steps(decodes, repeats)
            if repeats:  # ``complete`` takes the memory of all steps that have run
                self._decode_repeats = repeats
                return self._decodes_only
        batch = Batch((), decodes)
        if self._grows and decodes.size and not self.memory.grow(decodes, 1):
            self._make_room(batch)
            joining = joining or self._admits_after_preemption
        if joining:
            self._add_prompts(batch, now_s)
            self._head_changed = self._limited is not None and self.enforce_limit()
        return batch if decodes.size or batch.chunks else None

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance every sequence of a batch that ran ``steps`` times; return the finished."""
        finished: list[Sequence] = []
        decodes = self._decodes
        if batch.lockstep is not None and decodes.size:
            if self._grows:
                missing = decodes.steps + steps - decodes.granted_step
                if missing and not self.memory.grow(decodes, missing):
                    raise AssertionError("repeatable_steps promised room that is not there")
            finished = decodes.advance(steps)
        for seq, start, tokens, samples, _ in batch.chunks:
            seq.base_computed_tokens = start + tokens
            if samples:
                seq.base_generated_tokens = generated = (
                    seq.base_generated_tokens + self._tokens_of_prompt
                )
                self._prefilling.remove(seq)
                if seq.begins_samples:
                    finished += self._fork(seq)
                if seq.stopped or generated >= seq.max_tokens:
                    finished.append(seq)
                else:
                    decodes.join(seq)
        if not finished:
            return finished
        if len(finished) > 1:
            finished = self._in_order_of_release(finished)
        for seq in finished:
            self.memory.release(seq)
            self._waiting.served(seq)
        return finished_requests(finished) if self._forked else finished

    def _add_prompts(self, batch: Batch, now_s: float) -> None:
        """Fill what the decodes leave of the token budget with prompts, in order of admission."""
        prefilling, waiting = self._prefilling, self._waiting
        batch.one_row_prefills = self._one_row_prefills
        left, decode_rows = self._token_budget, 0
        if batch.lockstep is not None:
            decode_rows = self._rows_per_decode
            left -= decode_rows * self._decodes.size
        if self._chunk_memory is not None:
            self._make_room_for_chunks(batch, left, self._chunk_memory)
        for seq in prefilling:
            left -= self._add_chunk(batch, seq, left)
        if batch.preempted and not self._admits_after_preemption:
            return
        while waiting.size and left > 0 and self._has_slot():
            head = waiting.head()
            if head is None or not self._may_join(head, left, batch):
                return
            if not self._admit(head, batch, left, now_s):
                return
            if head.lockstep is not None:
                left -= decode_rows
            elif prefilling and prefilling[-1] is head:
                left -= self._add_chunk(batch, head, left)

    def _may_join(self, head: Sequence, left: int, batch: Batch) -> bool:
        """Return whether the next in line may join a step with ``left`` rows of its budget."""
        return True

    def _make_room_for_chunks(self, batch: Batch, left: int, memory: ChunkMemory) -> None:
        """Give prompts in progress room for their chunks of this step; without it, preempt some."""
        prefilling = self._prefilling
        place = 0
        while place < len(prefilling) and left > 0:
            seq = prefilling[place]
            computed_tokens = seq.base_computed_tokens
            total_tokens = seq.prompt_tokens + seq.base_generated_tokens
            end = min(total_tokens, computed_tokens + left)
            if memory.extend(seq, end):
                left -= end - computed_tokens
                place += 1
            else:
                self._preempt(choose_victim(self._victim, (), prefilling[place:]), batch)

    def _in_order_of_release(self, finished: list[Sequence]) -> list[Sequence]:
        """Return the sequences that a step has ended in the order of giving their memory back."""
        return finished

    def _reserve(self, seq: Sequence, cached_tokens: int, left: int) -> bool:
        """Take memory for the next in line, which finds ``cached_tokens``; False without room."""
        needed = seq.prompt_tokens + seq.base_generated_tokens
        if self._reserves_all:
            needed = seq.final_kv_tokens
        elif self._chunk_memory is not None:
            needed = min(needed, cached_tokens + left)
        return self.memory.reserve(seq, needed)

    def _admit(self, seq: Sequence, batch: Batch, left: int, now_s: float) -> bool:
        """Take the next in line out of the queue; False, and nothing changed, without room.

        ``left`` rows of the step's budget are left. A sequence that waits with computed tokens has
        them elsewhere (in host memory, or on another server that computed its prompt); it joins the
        decodes. One that is late is given up.
        """
        if seq.base_computed_tokens:
            return self._resume(seq, batch)
        memory = self.memory
        if self._rules.admission == "peak" and not self._has_room_at_peak(seq):
            return False
        cached_tokens = memory.cached_prefix(seq) if self._shares else 0
        if not self._reserve(seq, cached_tokens, left):
            return False
        if self._shed_ttft_s is not None and self.is_late(seq, now_s):
            memory.release(seq)
        else:
            if cached_tokens:
                seq.computed_tokens = cached_tokens
                if not seq.preemptions:
                    seq.cached_tokens = cached_tokens
                batch.swapped_tokens += seq.loaded_tokens
            self._prefilling.append(seq)
        self._waiting.pop()
        return True

    def _has_room_at_peak(self, seq: Sequence) -> bool:
        """Return whether ``seq`` and all that run stay below the memory's size; alone it may."""
        running = self.holders()
        return not running or peak_tokens([*running, seq]) < self.memory.capacity_tokens

    def _add_chunk(self, batch: Batch, seq: Sequence, limit: int) -> int:
        """Compute the next part of a prompt, at most ``limit`` rows; return how many they are."""
        if limit <= 0:
            return 0
        tokens = batch.add_chunk(seq, limit)
        if self._shares:
            self.memory.commit(seq, seq.base_computed_tokens + tokens)
        return tokens

    def _fork(self, seq: Sequence) -> list[Sequence]:
        """Begin the other samples of a computed prompt; return those that end at once.

        A sample for which there is no slot or no memory waits, and computes its prompt anew.
        """
        self._forked = True
        seq.group = SampleGroup(seq)
        ended = []
        for sample in range(1, seq.samples):
            child = seq.fork(sample)
            child.arrival_number = seq.arrival_number + sample
            if child.finished:
                ended.append(child)
            elif self._has_slot_beside(seq) and self._share(seq, child):
                self._decodes.join(child)
            else:
                self._waiting.push(child)
        return ended

    def _share(self, seq: Sequence, child: Sequence) -> bool:
        tokens = seq.final_kv_tokens if self._reserves_all else seq.computed_tokens
        return self.memory.fork(seq, child, tokens)

    def _has_slot_beside(self, seq: Sequence) -> bool:
        """Return whether one more may run beside ``seq``, which is about to join the decodes."""
        return self._decodes.size + len(self._prefilling) + 1 < self._max_seqs


def finished_requests(finished: list[Sequence]) -> list[Sequence]:
    """Return the requests that have ended: of several samples, the first stands for all."""
    ended = []
    for seq in finished:
        if seq.group is None:
            ended.append(seq)
            continue
        seq.group.left -= 1
        if not seq.group.left:
            ended.append(seq.group.first)
    return ended


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkedPrefill(IterationBatching):
    """Every step has at most ``token_budget`` rows: all decodes, then pieces of prompts.

    No prompt, however long, stalls the decodes for longer than one step of the budget.
    """
