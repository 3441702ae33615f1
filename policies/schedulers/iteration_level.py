"""What all iteration-level schedulers share: admission, lockstep decodes, preemption.

Membership is decided anew each step (Orca, OSDI 2022). Decodes grow on demand; when memory runs
out, a victim is preempted and later recomputed, or swapped to the host and back (vLLM, SOSP 2023).
"""

from collections.abc import Iterable

from policies.batch import Batch, ScheduledSequence
from policies.config import PolicyConfig
from policies.lockstep import Lockstep
from policies.protocols import KVMemory, Load
from policies.schedulers.host_memory import HostMemory
from policies.schedulers.preemption_victim import choose_victim
from policies.schedulers.queueing import (
    AdmissionQueue,
    ArrivalOrder,
    WaitingQueue,
    has_stable_head,
    queue_in_order,
)
from policies.sequence import SampleGroup, Sequence


class IterationBatching:
    """At most ``max_seqs`` sequences run; a subclass says what joins the decodes of a step.

    ``_prefilling`` are admitted sequences whose prompt is not computed yet, in order of admission;
    the members of ``_decodes`` have their first token.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        self.memory = memory
        self._max_seqs = config.max_seqs
        self._token_budget = config.token_budget
        self._reserves_all = config.admission == "full"
        self._grows = not self._reserves_all and memory.layout == "paged"
        self._victim = config.victim
        self._waiting = self.build_queue(config)
        self._admission = AdmissionQueue(memory, config, self._waiting)
        self.dropped = self._admission.dropped
        self.add = self._admission.add
        self._sheds = config.shed_ttft_s is not None
        self._bounded = config.queue_limit is not None
        self._shares = memory.shares_prefixes
        self._in_order = type(self._waiting) is ArrivalOrder
        self._volatile = not has_stable_head(self._waiting)
        self._host = HostMemory(config) if config.preemption == "swap" else None
        self._decodes = Lockstep(memory.block_tokens)
        self._forked = False
        self._head_changed = False
        self._decodes_only = Batch((), self._decodes)
        self._free_tokens = memory.free_tokens
        self._decode_repeats = 0
        """How often the batch of decodes alone repeats."""
        self._prefilling: list[Sequence] = []

    def build_queue(self, config: PolicyConfig) -> WaitingQueue:
        """Those who wait, and who of them is next; a subclass may have another order."""
        return queue_in_order(self.memory, config)

    def abort(self, request_id: str) -> Sequence | None:
        """Forget a request and free what it holds; None when it is not here."""
        found = None
        while seq := self._waiting.remove(request_id):
            self._forget_host(seq)
            found = seq
        for seq in self.holders():
            if seq.request_id == request_id:
                self._take_out(seq)
                found = seq
        return found

    def schedule(self, now_s: float) -> Batch | None:
        """The decodes, and what the subclass lets join them."""
        decodes = self._decodes
        joined = self._waiting.size or self._prefilling
        if not joined:
            if not decodes.size:
                return None
            steps = decodes.steps_to_end()
            self._decode_repeats = (
                self.memory.repeatable_steps(decodes, steps) if self._grows else steps
            )
            if self._decode_repeats:
                return self._decodes_only  # the room of its run is taken when it has run
        batch = Batch((), decodes)
        if decodes.size and self._grows and not self.memory.grow(decodes, 1):
            self._make_room(batch)
        if joined:
            self._add_prompts(batch, now_s)
            self._head_changed = self._bounded and self._admission.enforce_limit()
        return batch if decodes.size or batch.chunks else None

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance every sequence of a batch that ran ``steps`` times; returns the finished."""
        finished: list[Sequence] = []
        decodes = batch.lockstep
        if decodes is not None and decodes.size:
            if self._grows:
                missing = decodes.steps + steps - decodes.granted_step
                held = not missing or self.memory.grow(decodes, missing)
                assert held, "repeatable_steps promised room that is not there"
            finished = decodes.advance(steps)
        for seq, start, tokens, samples, _ in batch.chunks:
            seq.base_computed_tokens = start + tokens
            if samples:
                seq.base_generated_tokens += 1
                self._prefilling.remove(seq)
                if seq.samples > 1 and seq.group is None:
                    finished += self._fork(seq)
                if seq.stopped or seq.base_generated_tokens >= seq.max_tokens:
                    finished.append(seq)
                else:
                    self._decodes.join(seq)
        for seq in finished:
            self.memory.release(seq)
            self._waiting.served(seq)
        return finished_requests(finished) if self._forked else finished

    def repeatable_steps(self, batch: Batch) -> int:
        """Until a decode ends or a block is missing; a step with a chunk never repeats."""
        if batch is self._decodes_only:
            return self._decode_repeats
        if batch.chunks or batch.preempted or batch.swapped_tokens:
            return 1
        if self._waiting.size and (self._volatile or self._head_changed) and self._has_slot():
            return 1  # somebody else may be next: the cache changed, or others were given up
        decodes = self._decodes
        limit = decodes.steps_to_end()
        if limit == 1 or not self._grows:
            return limit
        granted = decodes.granted_step - decodes.steps
        return granted + self.memory.repeatable_steps(decodes, limit - granted)

    def arrival_may_change_batch(self) -> bool:
        """Whether a place is free and whoever comes now could be next; or the queue is full."""
        if self._bounded and self._admission.is_full():
            return True
        if self._in_order and self._waiting.size:
            return False
        return self._decodes.size + len(self._prefilling) < self._max_seqs

    def changes_batch(self, seq: Sequence) -> bool:
        """Whether the newcomer is next in line and a place is free; or one too many waits."""
        if self._bounded and self._admission.over_limit():
            return True
        return self._has_slot() and self._waiting.head() is seq

    def wake_s(self) -> float | None:
        """Never: what can run runs at once."""
        return None

    def load(self) -> Load:
        """(running sequences, waiting sequences, free KV tokens)."""
        running = self._decodes.size + len(self._prefilling)
        return running, self._waiting.size, self._free_tokens()

    def holders(self) -> list[Sequence]:
        """All sequences that hold KV memory, in order of admission."""
        return [*self._decodes, *self._prefilling]

    def waiting(self) -> Iterable[Sequence]:
        """Those who wait, in no order."""
        return iter(self._waiting)

    def _add_prompts(self, batch: Batch, now_s: float) -> None:
        """Fill what the decodes leave of the token budget with prompts, in order of admission."""
        prefilling, waiting = self._prefilling, self._waiting
        rows = 0
        for seq in prefilling:
            rows += self._add_chunk(batch, seq, self._left(batch, rows))
        while waiting.size and not batch.preempted and self._has_slot():
            left = self._left(batch, rows)
            head = waiting.head()
            if left <= 0 or head is None or not self._may_join(head, left, batch):
                return
            if not self._admit(head, batch, now_s):
                return
            if prefilling and prefilling[-1] is head:
                rows += self._add_chunk(batch, head, left)

    def _may_join(self, head: Sequence, left: int, batch: Batch) -> bool:
        """Whether the next in line may join a step that has ``left`` rows of its budget left."""
        return True

    def _left(self, batch: Batch, prompt_rows: int) -> int:
        decodes = self._decodes.size if batch.lockstep is not None else 0
        return self._token_budget - prompt_rows - decodes

    def _fork(self, seq: Sequence) -> list[Sequence]:
        """Begin the other answers to a prompt that has just been computed; those that end at once.

        An answer for which there is no slot or no memory waits, and computes its prompt anew.
        """
        self._forked = True
        seq.group = SampleGroup(seq)
        ended = []
        for _ in range(seq.samples - 1):
            child = seq.fork()
            child.arrival_number = self._admission.next_arrival_number()
            if child.base_generated_tokens >= child.max_tokens:
                ended.append(child)
            elif self._has_slot_beside(seq) and self._share(seq, child):
                self._decodes.join(child)
            else:
                self._waiting.push(child)
        return ended

    def _share(self, seq: Sequence, child: Sequence) -> bool:
        tokens = seq.final_kv_tokens if self._reserves_all else seq.base_computed_tokens
        return self.memory.fork(seq, child, tokens)

    def _has_slot_beside(self, seq: Sequence) -> bool:
        """Whether one more may run beside ``seq``, which is about to join the decodes."""
        return self._decodes.size + len(self._prefilling) + 1 < self._max_seqs

    def _has_slot(self) -> bool:
        return self._decodes.size + len(self._prefilling) < self._max_seqs

    def _admit(self, seq: Sequence, batch: Batch, now_s: float) -> bool:
        """Take the next in line out of the queue; False, and nothing changed, without room.

        A sequence that waits with computed tokens has them elsewhere (in host memory, or on another
        server that computed its prompt); it joins the decodes. One that is late is given up.
        """
        if seq.base_computed_tokens:
            return self._resume(seq, batch)
        memory = self.memory
        cached_tokens = memory.cached_prefix(seq) if self._shares else 0
        needed = seq.prompt_tokens + seq.base_generated_tokens
        if not memory.reserve(seq, seq.final_kv_tokens if self._reserves_all else needed):
            return False
        if self._sheds and self._admission.is_late(seq, now_s):
            memory.release(seq)
        else:
            if not seq.preemptions:
                seq.cached_tokens = cached_tokens
            seq.base_computed_tokens = cached_tokens
            batch.swapped_tokens += seq.loaded_tokens
            self._prefilling.append(seq)
        self._waiting.pop()
        return True

    def _add_chunk(self, batch: Batch, seq: Sequence, limit: int) -> int:
        """Compute the next part of a prompt, at most ``limit`` rows; how many they are."""
        start = seq.base_computed_tokens
        total = seq.prompt_tokens + seq.base_generated_tokens
        tokens = min(total - start, limit)
        if tokens > 0:
            end = start + tokens
            if self._shares:
                self.memory.commit(seq, end)
            chunk = tuple.__new__(ScheduledSequence, (seq, start, tokens, end == total, 0))
            batch.chunks = [*batch.chunks, chunk] if batch.chunks else [chunk]
        return tokens

    def _make_room(self, batch: Batch) -> None:
        """Preempt until the rest of the decodes can grow."""
        grown = False
        while not grown:
            victim = choose_victim(self._victim, self._decodes, self._prefilling)
            self._preempt(victim, batch)
            grown = not self._decodes.size or self.memory.grow(self._decodes, 1)

    def _preempt(self, seq: Sequence, batch: Batch) -> None:
        decoding = seq.lockstep is not None
        self._take_out(seq)
        seq.preemptions += 1
        batch.preempted = [*batch.preempted, seq]
        if self._host and decoding and self._host.store(seq):
            batch.swapped_tokens += seq.computed_tokens
        else:
            seq.computed_tokens = 0
        self._waiting.push(seq)

    def _resume(self, seq: Sequence, batch: Batch) -> bool:
        """Take in a sequence whose keys and values lie elsewhere; it decodes at once."""
        granted = batch.lockstep is not None  # this step's growth has been shared out already
        needed = seq.final_kv_tokens if self._reserves_all else seq.computed_tokens + granted
        if not self.memory.reserve(seq, needed):
            return False
        self._waiting.pop()
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

    def _forget_host(self, seq: Sequence) -> None:
        if seq.on_host and self._host:
            self._host.fetch(seq)


def finished_requests(finished: list[Sequence]) -> list[Sequence]:
    """Requests that have ended: of several answers to a prompt, the first stands for all."""
    ended = []
    for seq in finished:
        if seq.group is None:
            ended.append(seq)
            continue
        seq.group.left -= 1
        if not seq.group.left:
            ended.append(seq.group.first)
    return ended
