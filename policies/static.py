"""Static (request-level) batching: a batch is formed, padded, and held until its longest ends.

This is how FasterTransformer-style servers ran before Orca (OSDI 2022): prompts are padded to the
longest of the batch, and rows of finished sequences keep computing until the last one is done.
"""

from policies.batch import Batch, ScheduledSequence
from policies.config import PolicyConfig
from policies.protocols import KVMemory, Refusal
from policies.queueing import WaitingQueue
from policies.sequence import Sequence


class StaticBatching:
    """Admits only into an empty server; every member's whole length is reserved.

    A batch starts when ``max_seqs`` are waiting, or the oldest has waited ``wait_limit_s``. A
    finished member answers its client at once, but its slot and memory are held to the end.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        self.memory = memory
        self._max_seqs = config.max_seqs
        self._wait_limit_s = config.wait_limit_s
        self._waiting = WaitingQueue(memory, config.max_model_len, config.queue_limit)
        self._held: list[Sequence] = []

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or say why it is refused."""
        return self._waiting.add(seq)

    def abort(self, request_id: str) -> Sequence | None:
        """Forget a waiting sequence; one in the batch stops, its row is held to the end."""
        if seq := self._waiting.remove(request_id):
            return seq
        for seq in self._held:
            if seq.request_id == request_id and not seq.finished:
                seq.stopped = True
                self._release_if_over()
                return seq
        return None

    def schedule(self, now_s: float) -> Batch | None:
        """The held batch's next step, or a new batch when one is due."""
        if not self._held:
            return self._form(now_s)
        return Batch([_decode(seq) for seq in self._held])

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance the live members; the batch ends with its last one."""
        live = [entry for entry in batch.entries if entry.tokens]
        for entry in live:
            entry.seq.computed_tokens += entry.tokens + steps - 1
            entry.seq.generated_tokens += steps
        self._release_if_over()
        return [entry.seq for entry in live if entry.seq.finished]

    def quiet_steps(self, batch: Batch) -> int:
        """Until the next member ends; the step of the first tokens never repeats."""
        if any(entry.tokens and not entry.seq.generated_tokens for entry in batch.entries):
            return 1
        return min(
            entry.seq.max_tokens - entry.seq.generated_tokens
            for entry in batch.entries
            if entry.tokens
        )

    def cut_by_arrival(self) -> bool:
        """Never: nobody joins a running batch."""
        return False

    def wake_s(self) -> float | None:
        """When the oldest waiting sequence will have waited long enough."""
        head = self._waiting.head()
        return head.arrival_s + self._wait_limit_s if head and not self._held else None

    def counts(self) -> tuple[int, int]:
        """Sequences (running, waiting)."""
        return sum(not seq.finished for seq in self._held), len(self._waiting)

    def _form(self, now_s: float) -> Batch | None:
        head = self._waiting.head()
        if head is None:
            return None
        due = now_s >= head.arrival_s + self._wait_limit_s
        if len(self._waiting) < self._max_seqs and not due:
            return None
        while head and len(self._held) < self._max_seqs and self._admit(head):
            head = self._waiting.head()
        return _padded_prefill(self._held)

    def _admit(self, seq: Sequence) -> bool:
        cached_tokens = self.memory.cached_prefix(seq)
        if not self.memory.reserve(seq, seq.final_kv_tokens):
            return False
        self._waiting.pop()
        seq.cached_tokens = seq.computed_tokens = cached_tokens
        self.memory.commit(seq, seq.prompt_tokens)
        self._held.append(seq)
        return True

    def _release_if_over(self) -> None:
        if all(seq.finished for seq in self._held):
            for seq in self._held:
                self.memory.release(seq)
            self._held = []


def _decode(seq: Sequence) -> ScheduledSequence:
    if seq.finished:
        return ScheduledSequence(seq, seq.computed_tokens, tokens=0, samples=False, padding=1)
    return ScheduledSequence(seq, seq.computed_tokens, tokens=1, samples=True)


def _padded_prefill(seqs: list[Sequence]) -> Batch:
    longest = max(seq.prompt_tokens - seq.computed_tokens for seq in seqs)
    return Batch([_padded(seq, longest) for seq in seqs])


def _padded(seq: Sequence, rows: int) -> ScheduledSequence:
    tokens = seq.prompt_tokens - seq.computed_tokens
    return ScheduledSequence(seq, seq.computed_tokens, tokens, samples=True, padding=rows - tokens)
