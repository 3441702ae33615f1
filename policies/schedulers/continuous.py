"""Continuous (iteration-level) batching: each step is decided anew (Orca, OSDI 2022).

Decodes come first, then prompts, as far as slots, the token budget and memory allow. Decodes take
memory as they grow; when it runs out, a running sequence loses its own and waits again.
"""

from collections.abc import Iterable

from servetwin.policies.batch import Batch, SwappedOut
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import ChunkMemory, KVMemory
from servetwin.policies.schedulers.base import SchedulerBase
from servetwin.policies.schedulers.preemption import HostMemory, choose_victim
from servetwin.policies.schedulers.queueing import has_stable_head
from servetwin.policies.sequence import SampleGroup, Sequence
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class ContinuousBatching(SchedulerBase):
    """At most ``token_budget`` rows a step, decodes first; prompts join whole, in order.

    The first prompt of a step is split where it does not fit what the decodes leave of the
    budget, so that a long prompt is neither refused nor starved; the others wait for a step that
    holds them whole. With ``budget_count: padded`` they count as a matrix padded to the longest of
    them, as in vLLM 0.2.

    Between two decisions a batch of decodes only repeats, each context one token longer. A
    simulator takes all these steps at once; the engine takes them one by one and gets the same
    batches.

    ``_reserves_all`` says that admission reserves the whole length of a sequence, ``_grows`` that
    its decode takes block after block instead. ``_head_changed`` says that enforcing the queue's
    limit may have changed which sequence is next.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self._token_budget = config.token_budget
        self._reserves_all = config.admission == "full"
        self._grows = not self._reserves_all and memory.layout == "paged"
        self._shares = memory.shares_prefixes
        self._chunk_memory: ChunkMemory | None = None
        if config.prompt_blocks == "chunk" and not self._reserves_all:
            self._chunk_memory = memory if isinstance(memory, ChunkMemory) else None
        self._host = HostMemory(config.host_kv_tokens) if config.preemption == "swap" else None
        self._head_may_change = not has_stable_head(self._waiting) or config.admission == "peak"
        """Whether the next in line may be another, or find room, after any step."""
        self._head_changed = False
        self._decodes_only = Batch((), self._decodes)
        self._decode_repeats = 0
        """How often ``_decodes_only`` repeats."""
        self._forked = config.queue_samples

    def schedule(self, now_s: float) -> Batch | None:
        """Return the decodes, and the prompts that may join them."""
        decodes = self._decodes
        if not (self._waiting.size or self._prefilling):
            if not decodes.size:
                return None
            repeats = decodes.steps_to_end()
            if self._grows:
                repeats = self.memory.repeatable_steps(decodes, repeats)
            if repeats:  # ``complete`` takes the memory of all steps that have run
                self._decode_repeats = repeats
                return self._decodes_only
        batch = Batch((), decodes)
        self._decide(batch, now_s)
        self._head_changed = self._newcomers is not None and self.enforce_limit()
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
                seq.base_generated_tokens += batch.prompt_token
                self._prefilling.remove(seq)
                if seq.begins_samples:
                    finished += self._fork(seq)
                if seq.stopped or seq.base_generated_tokens >= seq.max_tokens:
                    finished.append(seq)
                else:
                    decodes.join(seq)
        if not finished:
            return finished
        if len(finished) > 1:
            finished = self._in_order_of_release(finished)
        self._end(finished)
        return finished_requests(finished) if self._forked else finished

    def _end(self, finished: list[Sequence]) -> None:
        """Give back what sequences held whose last token is out."""
        for seq in finished:
            self.memory.release(seq)
            self._waiting.served(seq)

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

    def changes_batch(self, seq: Sequence) -> bool:
        """Return whether ``seq``, just added, is next and has a slot, or is one too many."""
        if self._newcomers is not None and self.over_limit():
            return True
        return self._has_slot() and self._waiting.head() is seq

    def abort(self, request_id: str) -> Sequence | None:
        """Forget a request and free what it holds; None when it is not here."""
        aborted = None
        while seq := self._remove(request_id):
            if seq.on_host and self._host:
                self._host.fetch(seq)
            aborted = seq
        for seq in self.holders():
            if seq.request_id == request_id:
                self._take_out(seq)
                aborted = seq
        return aborted

    def _steps_of_decodes(self) -> int:
        """Return the steps until a decode ends or a block is missing."""
        decodes = self._decodes
        limit = decodes.steps_to_end()
        if limit == 1 or not self._grows:
            return limit
        granted = decodes.granted_step - decodes.steps
        return granted + self.memory.repeatable_steps(decodes, limit - granted)

    def _decide(self, batch: Batch, now_s: float) -> None:
        """Fill a batch: decodes, prompts in progress, and what waits."""
        decodes = self._decodes
        if self._grows and decodes.size and not self.memory.grow(decodes, 1):
            self._make_room(batch)
        left = self._continue_prompts(batch)
        if not batch.preempted or self._config.admit_after_preemption:
            self._admit_waiting(batch, left, now_s)

    def _make_room(self, batch: Batch) -> None:
        """Preempt until the other decodes can grow by one position each."""
        decodes = self._decodes
        has_room = False
        while not has_room:
            self._preempt(self._choose_victim(), batch)
            has_room = not decodes.size or self.memory.grow(decodes, 1)

    def _continue_prompts(self, batch: Batch) -> int:
        """Compute the next parts of prompts in progress; return the rows left of the budget."""
        batch.one_row_prefills = self._one_row_prefills
        left = self._token_budget
        if batch.lockstep is not None:
            left -= self._decodes.rows * self._decodes.size
        if self._chunk_memory is not None:
            self._make_room_for_chunks(batch, left, self._chunk_memory)
        for seq in self._prefilling:
            left -= self._add_chunk(batch, seq, left)
        return left

    def _make_room_for_chunks(self, batch: Batch, left: int, memory: ChunkMemory) -> None:
        """Give prompts in progress room for their chunks of this step; without it, preempt some."""
        prefilling = self._prefilling
        place = 0
        while place < len(prefilling) and left > 0:
            seq = prefilling[place]
            tokens = min(seq.missing_tokens, left)
            if memory.extend(seq, seq.base_computed_tokens + tokens):
                left -= tokens
                place += 1
            else:
                victim = choose_victim(self._config.victim, (), prefilling[place:])
                self._preempt(victim, batch)

    def _admit_waiting(self, batch: Batch, left: int, now_s: float) -> None:
        """Admit what waits, as far as slots, the rows left of the budget and memory allow."""
        waiting, prefilling = self._waiting, self._prefilling
        decode_rows = self._decodes.rows if batch.lockstep is not None else 0
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
        """Return whether a prompt is the first of the step, decodes at once, or fits whole."""
        if not batch.chunks or head.computed_tokens:
            return True
        rows = head.total_tokens - self.memory.cached_prefix(head)
        if self._config.budget_count == "padded":
            return _fits_padded(rows, left, batch)
        return rows <= left

    def _admit(self, seq: Sequence, batch: Batch, left: int, now_s: float) -> bool:
        """Take the next in line out of the queue; False, and nothing changed, without room.

        ``left`` rows of the step's budget are left. A sequence that waits with computed tokens has
        them elsewhere (in host memory, or on another server that computed its prompt); it joins the
        decodes. One that is late is given up.
        """
        if seq.base_computed_tokens:
            return self._resume(seq, batch)
        if self._config.admission == "peak" and not self._has_room_at_peak(seq):
            return False
        cached_tokens = self.memory.cached_prefix(seq) if self._shares else 0
        if not self._reserve(seq, cached_tokens, left):
            return False
        if self._config.shed_ttft_s is not None and self.is_late(seq, now_s):
            self.memory.release(seq)
        else:
            if cached_tokens:
                seq.computed_tokens = cached_tokens
                if not seq.preemptions:
                    seq.cached_tokens = cached_tokens
                batch.swapped_tokens += seq.loaded_tokens
            self._prefilling.append(seq)
        self._pop()
        return True

    def _reserve(self, seq: Sequence, cached_tokens: int, left: int) -> bool:
        """Take memory for the next in line, which finds ``cached_tokens``; False without room."""
        needed = seq.prompt_tokens + seq.base_generated_tokens
        if self._reserves_all:
            needed = seq.final_kv_tokens
        elif self._chunk_memory is not None:
            needed = min(needed, cached_tokens + left)
        return self.memory.reserve(seq, needed)

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

    def _preempt(self, seq: Sequence, batch: Batch) -> None:
        """Take the memory of a running sequence; it waits again."""
        decoding, blocks = self._is_decode(seq), seq.blocks
        seq.on_host = seq in batch.resumed  # they have not come yet, so no cache has them
        self._take_out(seq)
        seq.on_host = False
        seq.preemptions += 1
        batch.preempted = [*batch.preempted, seq]
        if self._host and decoding and self._host.store(seq):
            batch.swapped_tokens += seq.computed_tokens
            batch.swapped_out = [*batch.swapped_out, SwappedOut(seq, blocks)]
        else:
            if self._config.recompute == "computed" and not decoding:
                seq.shorten_prompt()
            seq.computed_tokens = 0
        self._waiting.push(seq)

    def _choose_victim(self) -> Sequence:
        return choose_victim(self._config.victim, self._decodes, self._prefilling)

    def _is_decode(self, seq: Sequence) -> bool:
        """Return whether a running sequence has computed all but its last token."""
        return seq.lockstep is not None

    def _resume(self, seq: Sequence, batch: Batch) -> bool:
        """Admit a sequence whose keys and values lie elsewhere; it decodes at once."""
        granted = batch.lockstep is not None  # the decodes have grown for this step already
        needed = seq.final_kv_tokens if self._reserves_all else seq.computed_tokens + granted
        if not self.memory.reserve(seq, needed):
            return False
        self._pop()
        if seq.on_host and self._host:
            self._host.fetch(seq)
            batch.swapped_tokens += seq.computed_tokens
        batch.resumed = [*batch.resumed, seq]
        if granted and self._grows:
            self._decodes.granted_step = self._decodes.steps + 1
        self._decodes.join(seq)
        return True

    def _take_out(self, seq: Sequence) -> None:
        if seq.lockstep is not None:
            self._decodes.leave(seq)
        else:
            self._prefilling.remove(seq)
        self.memory.release(seq)

    def _in_order_of_release(self, finished: list[Sequence]) -> list[Sequence]:
        """Return the sequences that a step has ended in the order of giving their memory back."""
        return finished

    def _fork(self, seq: Sequence) -> list[Sequence]:
        """Begin the other samples of a computed prompt; return those that end at once.

        A sample for which there is no slot or no memory waits, and computes its prompt anew.
        """
        self._forked = True
        seq.group = SampleGroup(seq)
        ended = []
        for sample in range(1, seq.samples):
            child = seq.fork(sample, seq.arrival_number + sample)
            running = self._decodes.size + len(self._prefilling) + 1  # with ``seq`` itself
            if child.finished:
                ended.append(child)
            elif running < self._max_seqs and self._share(seq, child):
                self._decodes.join(child)
            else:
                self._waiting.push(child)
        return ended

    def _share(self, seq: Sequence, child: Sequence) -> bool:
        self._number(child)
        tokens = seq.final_kv_tokens if self._reserves_all else seq.computed_tokens
        return self.memory.fork(seq, child, tokens)


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkedPrefill(ContinuousBatching):
    """Every step has at most ``token_budget`` rows: all decodes, then pieces of prompts.

    No prompt, however long, stalls the decodes for longer than one step of the budget.
    """

    def _may_join(self, head: Sequence, left: int, batch: Batch) -> bool:
        """Return True: a piece of a prompt fits any rest of the budget."""
        return True


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


def _fits_padded(rows: int, left: int, batch: Batch) -> bool:
    """Return whether a step whose prompts are padded has room for one more of ``rows`` rows."""
    prompts = [entry.tokens for entry in batch.chunks]
    return (len(prompts) + 1) * max(rows, *prompts) <= left + sum(prompts)
