"""Prefill first (vLLM before its version 1): new prompts pause the decodes."""

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class PrefillFirst(ContinuousBatching):
    """A step is either prompts, whole as far as ``token_budget`` allows, or decodes.

    As long as a prompt can be admitted, the decodes wait: short TTFT, at the price of stalls. With
    ``decodes_between_prefills``, prompts wait for that many steps of decodes first (LightLLM). A
    prompt takes its blocks when it is admitted, whatever ``prompt_blocks`` says.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self._chunk_memory = None  # A prompt that ran out of blocks would stop what frees them.
        self._decoded = 0
        """Steps of decodes since prompts ran."""

    def schedule(self, now_s: float) -> Batch | None:
        """Prompts if there are any to run, else the decodes."""
        if not (self._waiting.size or self._prefilling):
            return super().schedule(now_s)
        batch = Batch()
        if self._prompts_may_run():
            self._add_prompts(batch, now_s)
        self._head_changed = self.enforce_limit()
        if batch.chunks:
            return batch
        batch.lockstep = self._decodes
        if self._grows and self._decodes.size and not self.memory.grow(self._decodes, 1):
            self._make_room(batch)
        if not self._decodes.size and self._prefilling:
            self._add_prompts(batch, now_s)
        return batch if self._decodes.size or batch.chunks else None

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance every sequence of a batch that ran ``steps`` times; return the finished."""
        self._decoded = 0 if batch.chunks else self._decoded + steps
        return super().complete(batch, steps)

    def repeatable_steps(self, batch: Batch) -> int:
        """Return the steps until a decode ends, a block is missing or prompts have their turn."""
        changed = batch.chunks or batch.preempted or batch.swapped_tokens
        interval = self._config.decodes_between_prefills
        if changed or not interval or not self._waiting.size:
            return super().repeatable_steps(batch)
        turn = interval - self._decoded % interval
        return min(turn, self._steps_of_decodes())

    def _add_prompts(self, batch: Batch, now_s: float) -> None:
        left = self._continue_prompts(batch)
        if not batch.preempted or self._config.admit_after_preemption:
            self._admit_waiting(batch, left, now_s)

    def _prompts_may_run(self) -> bool:
        """Return whether it is the turn of prompts: enough steps of decodes have run since."""
        interval = self._config.decodes_between_prefills
        if not interval or not self._decodes.size or self._prefilling:
            return True
        return self._decoded > 0 and self._decoded % interval == 0
