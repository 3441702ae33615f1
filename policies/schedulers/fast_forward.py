"""A scheduler of lists, decided sequence by sequence, that a simulation need not ask at each step.

Where a step is the next token of every decode and nothing else, the one after it is the same as
long as no request comes, none ends and all find room: unless the policy depends on more, such as
the second or a count of steps. That cannot be proven of somebody else's code. So some stretches are
run step by step, and a policy that then decides otherwise is asked at every step from there on.
"""

import logging
from dataclasses import replace
from functools import cache
from typing import ClassVar

from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.config import PolicyConfig, require
from servetwin.policies.protocols import ChunkMemory, KVMemory, Refusal
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.native_class import mypyc_attr

_LOG = logging.getLogger(__name__)
FIRST_AUDITS = 8
# The first stretches are run step by step, then one in so many.
AUDIT_INTERVAL = 64

# Sequences of a step, each once, and how many of its next positions each computes.
Plan = list[tuple[Sequence, int]]


@mypyc_attr(allow_interpreted_subclasses=True)
class FastForward(ContinuousBatching):
    """Asks ``plan`` what a step computes, and repeats a step of decodes as long as that stays.

    For ``plan`` there are ``queue``, the waiting sequences; ``running``, the admitted ones in the
    order of admission; ``admit_next``, ``extend`` and ``evict``; ``config`` and ``memory``. A
    running sequence still computes ``missing_tokens``: the rest of its prompt, or 1 of a decode.
    What a step fills is found by others from the next step on.
    """

    repeats: ClassVar[bool] = True
    """Whether equal steps may be repeated without asking; false where time or a count decides."""

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        drafts = config.draft_rows
        require(not drafts, "draft_rows", drafts, "0 for a scheduler of lists")
        super().__init__(memory, replace(config, admission="full"))  # decodes grow one by one
        self.running: list[Sequence] = []
        self._step = Batch()
        self._chunks = memory if isinstance(memory, ChunkMemory) else None
        self._block = memory.block_tokens
        self._asks_always = not self.repeats
        # Whether the step is the next token of every decode, and nothing else.
        self._is_steady = False
        self._stretches = 0
        # How many of the next steps ought to be like the last one.
        self._audited_steps = 0

    def plan(self, now_s: float) -> Plan:
        """Return what the next step computes; it may admit and evict.

        Every scheduler of lists defines its own.
        """
        raise NotImplementedError

    def admit_next(self) -> Sequence | None:
        """Admit the next in line with room for its prompt; None where it has no slot or no room."""
        seq = self.queue.head()
        if seq is None or len(self.running) == self.config.max_seqs:
            return None
        cached = self.memory.cached_prefix(seq)
        if not self.memory.reserve(seq, seq.total_tokens):
            return None
        seq.begin_behind(cached)
        self.intake.pop()
        self.prompts.append(seq)
        self.running.append(seq)
        return seq

    def extend(self, seq: Sequence, tokens: int = 1) -> bool:
        """Give a running sequence room for its next positions; False without room."""
        end = seq.base_computed_tokens + tokens
        if seq.lockstep is not None:
            end += self.decodes.steps - seq.joined_step
        if end <= seq.held.blocks * self._block:
            return True
        return self._chunks is None or self._chunks.extend(seq, end)

    def evict(self, seq: Sequence) -> None:
        """Take the memory of a running sequence; it waits again."""
        self.preempt(seq, self._step)

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or return why it is refused."""
        self._audited_steps = 0
        if seq.samples > 1:
            reason = f"this scheduler gives one answer to a prompt, not {seq.samples}"
            return Refusal("unsupported", reason)
        return super().add(seq)

    def take_out(self, seq: Sequence) -> None:
        """Stop a running sequence; its memory is free."""
        self._audited_steps = 0
        self.running.remove(seq)
        super().take_out(seq)

    def schedule(self, now_s: float) -> Batch | None:
        """Return the planned step; decodes that are not in it pause."""
        if not (self.queue.size or self.running):
            return None
        decodes = self.decodes
        batch = self._step = Batch((), decodes, self.one_row_prefills)
        audited = self._audited_steps
        plan = self.plan(now_s)
        planned = dict(plan)
        if len(planned) < len(plan):
            raise PolicyError("plan: a sequence is in the step twice; it must be there once")
        chunks = [self._chunk(seq, n) for seq, n in plan if n != 1 or seq.lockstep is None]
        if len(planned) - len(chunks) < decodes.size:
            for seq in [seq for seq in decodes if seq not in planned]:
                decodes.leave(seq)
                self.prompts.append(seq)
        batch.chunks = chunks
        self._is_steady = decodes.size > 0 and not (chunks or batch.preempted)
        if audited:
            self._audit(audited)
        self.intake.enforce_limit()
        return batch if planned else None

    def repeatable_steps(self, batch: Batch) -> int:
        """Return the steps until a decode ends or lacks room; 1 with a prompt, or in an audit."""
        if not self._is_steady or self._asks_always or self._audited_steps:
            return 1
        decodes = self.decodes
        steps = decodes.steps_to_end()
        if steps > 1 and self._chunks is not None:
            decodes.granted_step = decodes.steps + 1
            steps = 1 + self.memory.repeatable_steps(decodes, steps - 1)
        self._stretches += 1
        if self._stretches <= FIRST_AUDITS or self._stretches % AUDIT_INTERVAL == 0:
            self._audited_steps = steps - 1
            return 1
        return steps

    def changes_batch(self, seq: Sequence) -> bool:
        """Return True: nobody else knows what the policy makes of an arrival."""
        return True

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance every sequence of a batch that ran ``steps`` times; return the finished."""
        if steps > 1 and self._chunks is not None:
            after, block = self.decodes.steps + steps, self._block
            for seq in self.decodes:
                end = seq.base_computed_tokens + after - seq.joined_step
                if end > seq.held.blocks * block:
                    self._chunks.extend(seq, end)
        return super().complete(batch, steps)

    def end(self, ended: list[Sequence]) -> list[Sequence]:
        """Give back what sequences held whose last token is out."""
        for seq in ended:
            self.running.remove(seq)
        return super().end(ended)

    def _chunk(self, seq: Sequence, tokens: int) -> ScheduledSequence:
        start = seq.computed_tokens
        self.memory.commit(seq, start + tokens)
        return ScheduledSequence(seq, start, tokens, start + tokens == seq.total_tokens)

    def _audit(self, steps: int) -> None:
        """Compare a step with the one before it, which it ought to repeat."""
        self._audited_steps = steps - 1
        if not self._is_steady:
            self._audited_steps = 0
            self._asks_always = True
            _tell(type(self).__name__)


@cache
def _tell(name: str) -> None:
    """Say once of a class why it is slow."""
    _LOG.warning(
        "%s changed a step of decodes although nothing had happened: from there on it is asked at "
        "every step; with `repeats = False` in the class it is asked from the start",
        name,
    )
