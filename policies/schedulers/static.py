"""Static (request-level) batching: a batch is formed, padded, and held until its longest ends.

This is how FasterTransformer-style servers ran before Orca (OSDI 2022): prompts are padded to the
longest of the batch, and rows of finished sequences keep computing until the last one is done. With
``padding: off`` neither is computed; the batch is held all the same.
"""

from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.config import PolicyConfig
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.protocols import KVMemory, Refusal
from servetwin.policies.schedulers.admission import Room
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
        super().__init__(memory, config, Room(memory, memory, Lockstep(memory.block_tokens)))
        # Rows of finished members, held to the end of the batch.
        self.ended: list[ScheduledSequence] = []

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or return why it is refused."""
        if seq.samples > 1:
            reason = f"static batching gives one answer to a prompt, not {seq.samples}"
            return Refusal("unsupported", reason)
        return super().add(seq)

    def abort(self, request_id: str) -> Sequence | None:
        """Forget a waiting sequence, or stop a member; its row is held to the end of the batch."""
        if seq := self.intake.remove(request_id):
            return seq
        for seq in self.decodes:
            if seq.request_id == request_id:
                seq.stopped = True
                self.decodes.leave(seq)
                self.end([seq])
                return seq
        return None

    def schedule(self, now_s: float) -> Batch | None:
        """Return the next step of the held batch, or a new batch when one is due."""
        dead_rows = self.ended if self.config.padding else ()
        batch = Batch(dead_rows, self.decodes) if self.decodes.size else self.form(now_s)
        self.intake.enforce_limit()
        return batch

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance the live members and return the finished; the batch ends with its last one."""
        finished = self.first_tokens() if self.prompts else self.decodes.advance(steps)
        self.end(finished)
        return finished

    def wake_s(self) -> float | None:
        """Return when the next in line will have waited ``wait_limit_s``."""
        head = None if self.decodes.size else self.queue.head()
        return head.arrival_s + self.config.wait_limit_s if head else None

    def holders(self) -> list[Sequence]:
        """Return all sequences that hold KV memory, finished members of the batch included."""
        return [*super().holders(), *(entry.seq for entry in self.ended)]

    def repeatable_steps(self, batch: Batch) -> int:
        """Return the steps until a member ends; the step of the first tokens never repeats."""
        return 1 if self.prompts else self.decodes.steps_to_end()

    def changes_batch(self, seq: Sequence) -> bool:
        """Return whether one sequence too many waits: no arrival joins a running batch."""
        return self.intake.over_limit()

    def form(self, now_s: float) -> Batch | None:
        """Return the prompts of a new batch where one is due, padded to the longest of them."""
        head, config = self.queue.head(), self.config
        if head is None:
            return None
        if self.queue.size < config.max_seqs and now_s < head.arrival_s + config.wait_limit_s:
            return None
        while head and len(self.prompts) < config.max_seqs and self.admit(head, now_s):
            head = self.queue.head()
        if not self.prompts:
            return None
        rows = [seq.prompt_tokens - seq.computed_tokens for seq in self.prompts]
        longest = max(rows) if config.padding else 0
        chunks = [_prompt(s, n, max(n, longest)) for s, n in zip(self.prompts, rows, strict=True)]
        batch = Batch(chunks, None, self.one_row_prefills)
        batch.swapped_tokens = sum(
            seq.held.loaded_tokens + seq.held.adapter_tokens for seq in self.prompts
        )
        return batch

    def admit(self, seq: Sequence, now_s: float) -> bool:
        """Take the next in line into the batch, or give it up; False without room."""
        if not self.intake.give_up_if_late(seq, now_s):
            cached_tokens = self.memory.cached_prefix(seq)
            if not self.memory.reserve(seq, seq.final_kv_tokens):
                return False
            seq.cached_tokens = seq.base_computed_tokens = cached_tokens
            self.memory.commit(seq, seq.prompt_tokens)
            self.prompts.append(seq)
        self.intake.pop()
        return True

    def first_tokens(self) -> list[Sequence]:
        """Let the computed prompts decode; return those of one token."""
        finished = []
        for seq in self.prompts:
            seq.base_computed_tokens, seq.base_generated_tokens = seq.prompt_tokens, 1
            if seq.finished:
                finished.append(seq)
            else:
                self.decodes.join(seq)
        self.prompts = []
        return finished

    def end(self, seqs: list[Sequence]) -> None:
        """Hold the rows of finished members; the batch ends with its last one."""
        rows = [ScheduledSequence(s, s.computed_tokens, 0, False, padding=1) for s in seqs]
        self.ended = self.ended + rows
        if not self.decodes.size:
            for entry in self.ended:
                self.memory.release(entry.seq)
                self.queue.served(entry.seq)
            self.ended = []


def _prompt(seq: Sequence, tokens: int, rows: int) -> ScheduledSequence:
    """Return the rest of a prompt, ``tokens`` long, padded to ``rows``."""
    return ScheduledSequence(
        seq, seq.computed_tokens, tokens, yields_token=True, padding=rows - tokens
    )
