"""What all iteration-level schedulers share: admission, lockstep decodes, preemption.

Membership is decided anew each step (Orca, OSDI 2022). Decodes grow on demand; when memory runs
out, a victim is preempted and later recomputed, or swapped to the host and back (vLLM, SOSP 2023).
"""

from policies.batch import Batch, ScheduledSequence
from policies.config import PolicyConfig
from policies.host_memory import HostMemory
from policies.lockstep import Lockstep
from policies.protocols import KVMemory, Refusal
from policies.queueing import LongestPrefixFirst, Reception
from policies.sequence import Sequence
from policies.victims import choose_victim


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
        self._reception = Reception(memory, config)
        self._waiting = self._reception.waiting
        self._in_order = config.queue_order == "fcfs"
        self._volatile = isinstance(self._waiting, LongestPrefixFirst)
        self._host = HostMemory(config) if config.preemption == "swap" else None
        self._decodes = Lockstep(memory.block_tokens)
        self._prefilling: list[Sequence] = []

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or say why it is refused."""
        return self._reception.add(seq)

    def abort(self, request_id: str) -> Sequence | None:
        """Forget a sequence and free what it holds; None when it is not here."""
        if seq := self._waiting.remove(request_id):
            self._forget_host(seq)
            return seq
        for seq in self.holders():
            if seq.request_id == request_id:
                self._take_out(seq)
                return seq
        return None

    def schedule(self, now_s: float) -> Batch | None:
        """The decodes, and what the subclass lets join them."""
        decodes = self._decodes
        batch = Batch((), decodes)
        if decodes.size and self._grows and not self.memory.grow(decodes, 1):
            self._make_room(batch)
        if self._waiting.size or self._prefilling:
            self._add_prompts(batch, now_s)
            self._reception.keep_bound()
        return batch if decodes.size or batch.chunks else None

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance every sequence of a batch that ran ``steps`` times; returns the finished."""
        finished = []
        decodes = batch.lockstep
        if decodes is not None and decodes.size:
            if steps > 1 and self._grows:
                held = self.memory.grow(decodes, steps - 1)
                assert held, "quiet_steps promised room that is not there"
            finished = decodes.advance(steps)
        for seq, start, tokens, samples, _ in batch.chunks:
            seq.computed_tokens = start + tokens
            if samples:
                seq.generated_tokens += 1
                self._prefilling.remove(seq)
                if seq.finished:
                    finished.append(seq)
                else:
                    self._decodes.join(seq)
        for seq in finished:
            self.memory.release(seq)
            self._waiting.served(seq)
        return finished

    def quiet_steps(self, batch: Batch) -> int:
        """Until a decode ends or a block is missing; a step with a chunk never repeats."""
        if batch.chunks or batch.preempted or batch.swapped_tokens:
            return 1
        if self._volatile and self._waiting.size and self._has_slot():
            return 1  # whoever is next may change with what the decodes evict
        limit = self._decodes.steps_to_end()
        if limit == 1 or not self._grows:
            return limit
        return 1 + self.memory.quiet_steps(self._decodes, limit - 1)

    def may_cut(self) -> bool:
        """Whether a place is free and whoever comes now could be next; or the queue is full."""
        if self._reception.is_full():
            return True
        return self._has_slot() and not (self._in_order and self._waiting.size)

    def cut_by(self, seq: Sequence) -> bool:
        """Whether the newcomer is next in line and a place is free; or one too many waits."""
        if self._reception.is_beyond_bound():
            return True
        return self._has_slot() and self._waiting.head() is seq

    def wake_s(self) -> float | None:
        """Never: what can run runs at once."""
        return None

    def counts(self) -> tuple[int, int]:
        """Sequences (running, waiting)."""
        return self._decodes.size + len(self._prefilling), self._waiting.size

    def holders(self) -> list[Sequence]:
        """All sequences that hold KV memory, in order of admission."""
        return [*self._decodes, *self._prefilling]

    def dropped(self) -> list[tuple[Sequence, Refusal]]:
        """Sequences that were given up while they waited, since the last call."""
        return self._reception.dropped()

    def _add_prompts(self, batch: Batch, now_s: float) -> None:
        """Fill what the decodes leave of the token budget with prompts, in order of admission."""
        rows = 0
        for seq in self._prefilling:
            rows += self._add_chunk(batch, seq, self._left(batch, rows))
        while (left := self._left(batch, rows)) > 0 and not batch.preempted:
            head = self._waiting.head()
            if head is None or not (head.computed_tokens or self._may_join(head, left, batch)):
                return
            seq_ = self._admit_next(batch, now_s)
            if seq_ is None:
                return
            rows += self._add_chunk(batch, seq_, self._left(batch, rows))

    def _may_join(self, head: Sequence, left: int, batch: Batch) -> bool:
        """Whether the next in line may join a step that has ``left`` rows of its budget left."""
        return True

    def _left(self, batch: Batch, prompt_rows: int) -> int:
        decodes = self._decodes.size if batch.lockstep is not None else 0
        return self._token_budget - prompt_rows - decodes

    def _has_slot(self) -> bool:
        return self._decodes.size + len(self._prefilling) < self._max_seqs

    def _admit_next(self, batch: Batch, now_s: float) -> Sequence | None:
        """Admit one of those in line; None when nobody waits or there is no room.

        A sequence that waits with computed tokens has them elsewhere (in host memory, or on another
        server that computed its prompt); it joins the decodes on the way.
        """
        while self._waiting.size and self._has_slot():
            seq = self._waiting.head()
            assert seq is not None
            if seq.computed_tokens:
                if not self._resume(seq, batch):
                    return None
                continue
            cached_tokens = self.memory.cached_prefix(seq)
            needed = seq.final_kv_tokens if self._reserves_all else seq.total_tokens
            if not self.memory.reserve(seq, needed):
                return None
            if not seq.preemptions:
                seq.cached_tokens = cached_tokens
            self._waiting.pop()
            if self._reception.is_late(seq, now_s):
                self.memory.release(seq)
                continue
            seq.computed_tokens = cached_tokens
            self._prefilling.append(seq)
            return seq
        return None

    def _add_chunk(self, batch: Batch, seq: Sequence, limit: int) -> int:
        """Compute the next part of a prompt, at most ``limit`` rows; how many they are."""
        start, total = seq.computed_tokens, seq.total_tokens
        tokens = min(total - start, limit)
        if tokens > 0:
            end = start + tokens
            self.memory.commit(seq, end)
            chunk = ScheduledSequence(seq, start, tokens, end == total)
            batch.chunks = [*batch.chunks, chunk]
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
