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
        self.chunks = None  # A prompt that ran out of blocks would stop what frees them.
        # Steps of decodes since prompts ran.
        self.decoded = 0

    def schedule(self, now_s: float) -> Batch | None:
        """Return prompts if there are any to run, else the decodes."""
        if not (self.queue.size or self.prompts):
            return super().schedule(now_s)
        batch = Batch((), None, self.one_row_prefills)
        if self.prompts_may_run():
            self.add_prompts(batch, now_s)
        self.intake.enforce_limit()
        if not batch.chunks:
            batch.lockstep, batch.prompt_token = self.decodes, self.decodes.prompt_token
            self.make_room(batch)
            if not self.decodes.size and self.prompts:
                self.add_prompts(batch, now_s)
        return batch if batch.chunks or self.decodes.size else None

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance every sequence of a batch that ran ``steps`` times; return the finished."""
        self.decoded = 0 if batch.chunks else self.decoded + steps
        return super().complete(batch, steps)

    def repeatable_steps(self, batch: Batch) -> int:
        """Return the steps until a decode ends, a block is missing or prompts have their turn."""
        changed = batch.chunks or batch.preempted or batch.swapped_tokens
        interval = self.config.decodes_between_prefills
        if changed or not interval or not self.queue.size:
            return super().repeatable_steps(batch)
        return min(interval - self.decoded % interval, self.decodes.repeats())

    def add_prompts(self, batch: Batch, now_s: float) -> None:
        """Go on with prompts, and admit others."""
        left = self.go_on_with_prompts(batch)
        if not batch.preempted or self.config.admit_after_preemption:
            self.admit(batch, left, now_s)

    def prompts_may_run(self) -> bool:
        """Return whether it is the turn of prompts: enough steps of decodes have run since."""
        interval = self.config.decodes_between_prefills
        if not interval or not self.decodes.size or self.prompts:
            return True
        return self.decoded > 0 and self.decoded % interval == 0
