"""Static (request-level) batching: a batch is formed, padded, and held until its longest ends.

This is how FasterTransformer-style servers ran before Orca (OSDI 2022): prompts are padded to the
longest of the batch, and rows of finished sequences keep computing until the last one is done. With
``padding: off`` neither is computed; the batch is held all the same.
"""

from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory, Refusal
from servetwin.policies.schedulers.base import SchedulerBase
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class StaticBatching(SchedulerBase):
    """Admits only into an empty server, and reserves the whole length of every member.

    A batch starts when ``max_seqs`` sequences wait, or the next in line has waited
    ``wait_limit_s``. A finished member is answered at once, but its row is computed (unless
    ``padding`` is off) and its memory held until the last member ends.
    """

    has_token_budget = False

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self._ended: list[ScheduledSequence] = []
        """Rows of finished members, held to the end of the batch."""

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or return why it is refused."""
        if seq.samples > 1:
            reason = f"static batching gives one answer to a prompt, not {seq.samples}"
            return Refusal("unsupported", reason)
        return super().add(seq)

    def abort(self, request_id: str) -> Sequence | None:
        """Forget a waiting sequence, or stop a member; its row is held to the end of the batch."""
        if seq := self._remove(request_id):
            return seq
        for seq in self._decodes:
            if seq.request_id == request_id:
                seq.stopped = True
                self._decodes.leave(seq)
                self._end([seq])
                return seq
        return None

    def schedule(self, now_s: float) -> Batch | None:
        """Return the next step of the held batch, or a new batch when one is due."""
        dead_rows = self._ended if self._config.padding else ()
        batch = Batch(dead_rows, self._decodes) if self._decodes.size else self._form(now_s)
        self.enforce_limit()
        return batch

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance the live members and return the finished; the batch ends with its last one."""
        finished = self._first_tokens() if self._prefilling else self._decodes.advance(steps)
        self._end(finished)
        return finished

    def wake_s(self) -> float | None:
        """Return when the next in line will have waited ``wait_limit_s``."""
        head = self._waiting.head()
        return (
            head.arrival_s + self._config.wait_limit_s if head and not self._decodes.size else None
        )

    def holders(self) -> list[Sequence]:
        """Return all sequences that hold KV memory, finished members of the batch included."""
        return [*super().holders(), *(entry.seq for entry in self._ended)]

    def _form(self, now_s: float) -> Batch | None:
        head = self._waiting.head()
        if head is None:
            return None
        due = now_s >= head.arrival_s + self._config.wait_limit_s
        if self._waiting.size < self._max_seqs and not due:
            return None
        while head and len(self._prefilling) < self._max_seqs and self._admit(head, now_s):
            head = self._waiting.head()
        return self._prefill() if self._prefilling else None

    def _prefill(self) -> Batch:
        seqs = self._prefilling
        rows = [seq.prompt_tokens - seq.computed_tokens for seq in seqs]
        longest = max(rows) if self._config.padding else 0
        batch = Batch([_prompt(s, n, max(n, longest)) for s, n in zip(seqs, rows, strict=True)])
        batch.swapped_tokens = sum(seq.loaded_tokens for seq in seqs)
        batch.one_row_prefills = self._one_row_prefills
        return batch

    def _admit(self, seq: Sequence, now_s: float) -> bool:
        if self.is_late(seq, now_s):
            self._pop()
            return True
        cached_tokens = self.memory.cached_prefix(seq)
        if not self.memory.reserve(seq, seq.final_kv_tokens):
            return False
        seq.cached_tokens = seq.computed_tokens = cached_tokens
        self._pop()
        self.memory.commit(seq, seq.prompt_tokens)
        self._prefilling.append(seq)
        return True

    def _first_tokens(self) -> list[Sequence]:
        for seq in self._prefilling:
            seq.computed_tokens = seq.prompt_tokens
            seq.generated_tokens = 1
        finished = [seq for seq in self._prefilling if seq.finished]
        for seq in self._prefilling:
            if not seq.finished:
                self._decodes.join(seq)
        self._prefilling = []
        return finished

    def _end(self, seqs: list[Sequence]) -> None:
        if seqs:
            rows = [ScheduledSequence(s, s.computed_tokens, 0, False, padding=1) for s in seqs]
            self._ended = self._ended + rows
        if self._decodes.size:
            return
        for entry in self._ended:
            self.memory.release(entry.seq)
            self._waiting.served(entry.seq)
        self._ended = []

    def repeatable_steps(self, batch: Batch) -> int:
        """Return the steps until a member ends; the step of the first tokens never repeats."""
        return 1 if self._prefilling else self._decodes.steps_to_end()

    def changes_batch(self, seq: Sequence) -> bool:
        """Return whether one sequence too many waits: no arrival joins a running batch."""
        return self.over_limit()


def _prompt(seq: Sequence, tokens: int, rows: int) -> ScheduledSequence:
    """Return the rest of a prompt, ``tokens`` long, padded to ``rows``."""
    return ScheduledSequence(seq, seq.computed_tokens, tokens, samples=True, padding=rows - tokens)
