"""Continuous (iteration-level) batching with chunked prefill under a token budget.

Membership is decided anew each step (Orca, OSDI 2022); decodes go first and prompts fill what is
left of the budget, so a long prompt never stalls them (Sarathi-Serve, OSDI 2024). Admission
reserves the whole prompt; decodes grow on demand, and when memory runs out the newest sequence is
preempted and later recomputed (vLLM, SOSP 2023).
"""

from policies.batch import Batch, ScheduledSequence
from policies.config import PolicyConfig
from policies.protocols import KVMemory, Refusal
from policies.queueing import WaitingQueue
from policies.sequence import Sequence


class ContinuousBatching:
    """First come, first served; at most ``max_seqs`` sequences and ``token_budget`` rows a step."""

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        self.memory = memory
        self._max_seqs = config.max_seqs
        self._token_budget = config.token_budget
        self._waiting = WaitingQueue(memory, config.max_model_len, config.queue_limit)
        self._running: list[Sequence] = []  # in order of admission

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or say why it is refused."""
        return self._waiting.add(seq)

    def abort(self, request_id: str) -> Sequence | None:
        """Forget a sequence and free what it holds; None when it is not here."""
        if seq := self._waiting.remove(request_id):
            return seq
        for seq in self._running:
            if seq.request_id == request_id:
                self._running.remove(seq)
                self.memory.release(seq)
                return seq
        return None

    def schedule(self, now_s: float) -> Batch | None:
        """Decodes, then unfinished prompts, then as many waiting as fit."""
        batch = Batch([])
        budget = self._continue_running(batch)
        if not batch.preempted:
            self._admit_waiting(batch, budget)
        return batch if batch.entries else None

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance every sequence of a batch that ran ``steps`` times; returns the finished."""
        finished = []
        for entry in batch.entries:
            seq = entry.seq
            if steps > 1:
                held = self.memory.reserve(seq, seq.computed_tokens + steps)
                assert held, "quiet_steps promised room that is not there"
            seq.computed_tokens += entry.tokens + steps - 1
            if entry.samples:
                seq.generated_tokens += steps
                if seq.finished:
                    finished.append(seq)
        for seq in finished:
            self._running.remove(seq)
            self.memory.release(seq)
        return finished

    def quiet_steps(self, batch: Batch) -> int:
        """Until a decode ends or a block is missing; a step with a first token never repeats."""
        if batch.preempted or len(batch.entries) < len(self._running):
            return 1
        if any(e.tokens > 1 or not e.samples or not e.seq.generated_tokens for e in batch.entries):
            return 1
        limit = min(e.seq.max_tokens - e.seq.generated_tokens for e in batch.entries)
        return self.memory.quiet_steps([e.seq for e in batch.entries], limit)

    def cut_by_arrival(self) -> bool:
        """Whether a newcomer would be next in line and a place is free."""
        return len(self._waiting) == 0 and len(self._running) < self._max_seqs

    def wake_s(self) -> float | None:
        """Never: what can run runs at once."""
        return None

    def counts(self) -> tuple[int, int]:
        """Sequences (running, waiting)."""
        return len(self._running), len(self._waiting)

    def _continue_running(self, batch: Batch) -> int:
        budget = self._token_budget
        for seq in self._decodes_first():
            if budget == 0:
                break
            if seq.preemptions and seq not in self._running:
                continue
            tokens = min(seq.total_tokens - seq.computed_tokens, budget)
            if self._make_room(seq, seq.computed_tokens + tokens, batch):
                budget -= tokens
                self._schedule(seq, tokens, batch)
        return budget

    def _decodes_first(self) -> list[Sequence]:
        return sorted(self._running, key=lambda seq: seq.total_tokens - seq.computed_tokens > 1)

    def _make_room(self, seq: Sequence, tokens: int, batch: Batch) -> bool:
        """Preempt the newest that is not in this batch until ``seq`` fits; False if it is that."""
        while not self.memory.reserve(seq, tokens):
            scheduled = {id(entry.seq) for entry in batch.entries}
            victim = next(s for s in reversed(self._running) if id(s) not in scheduled)
            self._preempt(victim, batch)
            if victim is seq:
                return False
        return True

    def _preempt(self, seq: Sequence, batch: Batch) -> None:
        self._running.remove(seq)
        self.memory.release(seq)
        seq.computed_tokens = 0
        seq.preemptions += 1
        self._waiting.put_back(seq)
        batch.preempted.append(seq)

    def _admit_waiting(self, batch: Batch, budget: int) -> None:
        head = self._waiting.head()
        while head and budget > 0 and len(self._running) < self._max_seqs:
            cached_tokens = self.memory.cached_prefix(head)
            if not self.memory.reserve(head, head.total_tokens):
                return
            self._running.append(self._waiting.pop())
            head.computed_tokens = cached_tokens
            if not head.preemptions:
                head.cached_tokens = cached_tokens
            tokens = min(head.total_tokens - cached_tokens, budget)
            budget -= tokens
            self._schedule(head, tokens, batch)
            head = self._waiting.head()

    def _schedule(self, seq: Sequence, tokens: int, batch: Batch) -> None:
        start = seq.computed_tokens
        self.memory.commit(seq, start + tokens)
        samples = start + tokens == seq.total_tokens
        batch.entries.append(ScheduledSequence(seq, start, tokens, samples))
