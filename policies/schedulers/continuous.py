"""Continuous (iteration-level) batching: each step is decided anew (Orca, OSDI 2022).

Decodes come first, then prompts, as far as slots, the token budget and memory allow. Decodes take
memory as they grow; when it runs out, a running sequence loses its own and waits again.
"""

from collections.abc import Reversible

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory
from servetwin.policies.schedulers.admission import Joins, in_pieces, padded, room_for, whole
from servetwin.policies.schedulers.base import SchedulerBase
from servetwin.policies.schedulers.preemption import VICTIMS
from servetwin.policies.sequence import Sequence, ended_requests
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class ContinuousBatching(SchedulerBase):
    """At most ``token_budget`` rows a step, decodes first; prompts join in order.

    Whether a waiting prompt may join a step is the rule ``joins``. What only some servers ask for
    lies in ``room_rules`` and ``forking``.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig, joins: Joins = whole) -> None:
        super().__init__(memory, config, room_for(memory, config))
        self.joins = padded if config.budget_count == "padded" and joins is whole else joins
        self.budget = config.token_budget
        self.shares_prefixes = memory.shares_prefixes
        self.admits_by_peak = config.admission == "peak"

    def decide(self, batch: Batch, now_s: float) -> None:
        """Fill a step with what runs and what it admits."""
        preempted = len(batch.preempted)
        left = self.run(batch)
        if len(batch.preempted) == preempted or self.config.admit_after_preemption:
            self.admit(batch, left, now_s)

    def run(self, batch: Batch) -> int:
        """Compute a token of every decode, and parts of prompts; return the rows left."""
        self.make_room(batch)
        return self.go_on_with_prompts(batch)

    def make_room(self, batch: Batch) -> None:
        """Let every decode take room for its next position; where there is none, preempt some."""
        while not self.decodes.grow():
            self.preempt(self.victim(self.prompts, self.decodes), batch)

    def go_on_with_prompts(self, batch: Batch) -> int:
        """Compute the next parts of prompts in progress; return the rows left of the budget."""
        left = self.budget
        if batch.lockstep is not None:
            left -= self.decodes.rows * self.decodes.size
        if self.chunks is not None:
            while lacking := self.chunks.lacking(self.prompts, left):
                self.preempt(self.victim(lacking, ()), batch)
        for seq in self.prompts:
            left -= self.compute(seq, left, batch)
        return left

    def admit(self, batch: Batch, left: int, now_s: float) -> None:
        """Admit what waits, as far as slots, the rows left of the budget and memory allow."""
        queue, intake, memory, decodes = self.queue, self.intake, self.memory, self.decodes
        while queue.size and left > 0 and self.has_slot():
            seq = queue.head()
            if seq is None:
                return
            if seq.base_computed_tokens:  # Its keys lie in host memory, or on another server.
                if left < decodes.rows or not self.resume(seq, batch):
                    return
                left -= decodes.rows if batch.lockstep is not None else 0
                continue
            cached = memory.cached_prefix(seq) if self.shares_prefixes else 0
            tokens = seq.prompt_tokens + seq.base_generated_tokens
            if not self.joins(batch, tokens - cached, left):
                return
            if self.admits_by_peak and not self.has_room_at_peak(seq):
                return
            if not self.reserve(seq, cached, left):
                return
            if intake.sheds and intake.give_up_if_late(seq, now_s):
                memory.release(seq)
                intake.pop()
                continue
            if cached:
                seq.begin_behind(cached)
                batch.swapped_tokens += seq.held.loaded_tokens
            intake.pop()
            if seq.adapter is not None:
                batch.swapped_tokens += seq.held.adapter_tokens
            self.prompts.append(seq)
            left -= self.compute(seq, left, batch)

    def reserve(self, seq: Sequence, cached: int, left: int) -> bool:
        """Take memory for the next in line, which finds ``cached`` tokens; False without room."""
        tokens = seq.prompt_tokens + seq.base_generated_tokens
        if self.chunks is not None:
            tokens = min(tokens, cached + left)
        return self.admitting_memory.reserve(seq, tokens)

    def has_room_at_peak(self, seq: Sequence) -> bool:
        """Return whether ``seq`` and all that run stay below the memory's size; alone it may."""
        from servetwin.policies.schedulers.room_rules import peak_tokens

        running = self.holders()
        return not running or peak_tokens([*running, seq]) < self.memory.capacity_tokens

    def compute(self, seq: Sequence, left: int, batch: Batch) -> int:
        """Compute the next part of a prompt, at most ``left`` rows; return how many they are."""
        if left <= 0:
            return 0
        tokens = batch.add_chunk(seq, left)
        if self.shares_prefixes:
            self.memory.commit(seq, seq.base_computed_tokens + tokens)
        return tokens

    def victim(self, prompts: list[Sequence], decodes: Reversible[Sequence]) -> Sequence:
        """Return the sequence that loses its memory: a prompt in progress, or a decode."""
        return VICTIMS[self.config.victim](prompts, decodes)

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance every sequence of a batch that ran ``steps`` times; return the finished."""
        decodes = self.decodes
        ended: list[Sequence] = []
        if batch.lockstep is not None and decodes.size:
            ended = decodes.advance(steps)
        for seq, start, tokens, yields_token, _ in batch.chunks:
            seq.base_computed_tokens = start + tokens
            if yields_token:
                seq.base_generated_tokens = start + tokens - seq.prompt_tokens + batch.prompt_token
                self.prompts.remove(seq)
                if seq.begins_samples:
                    from servetwin.policies.schedulers.forking import begin_samples

                    slots = self.max_seqs - decodes.size - len(self.prompts) - 1
                    ended += begin_samples(self, seq, slots)
                if seq.finished:
                    ended.append(seq)
                else:
                    decodes.join(seq)
        if not ended:
            return ended
        return ended_requests(self.end(ended))

    def end(self, ended: list[Sequence]) -> list[Sequence]:
        """Give back what sequences held whose last token is out; return them in that order."""
        for seq in ended:
            self.memory.release(seq)
            self.queue.served(seq)
        return ended


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkedPrefill(ContinuousBatching):
    """Every step has at most ``token_budget`` rows: all decodes, then pieces of prompts.

    No prompt, however long, stalls the decodes for longer than one step of the budget.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config, in_pieces)
