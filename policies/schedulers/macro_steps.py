"""How often a batch repeats, and which arrivals end the repetition; decides nothing itself.

Between two decisions a batch of decodes only repeats, each context one token longer. A simulator
takes all these steps at once; the engine takes them one by one and gets the same batches.
"""

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory
from servetwin.policies.schedulers.preemption import PreemptiveScheduler
from servetwin.policies.schedulers.queueing import has_stable_head
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class MacroSteps(PreemptiveScheduler):
    """Foresees the next steps of an iteration-level scheduler.

    ``_head_changed`` says that enforcing the queue's limit may have changed which sequence is next.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self._head_may_change = not has_stable_head(self._waiting) or config.admission == "peak"
        """Whether the next in line may be another, or find room, after any step."""
        self._head_changed = False
        self._decodes_only = Batch((), self._decodes)
        self._decode_repeats = 0
        """How often ``_decodes_only`` repeats."""

    def repeatable_steps(self, batch: Batch) -> int:
        """Return the steps until a decode ends or a block is missing; 1 with a prompt."""
        if batch is self._decodes_only:
            return self._decode_repeats
        if batch.chunks or batch.preempted or batch.swapped_tokens:
            return 1
        if (
            self._waiting.size
            and (self._head_may_change or self._head_changed)
            and self._has_slot()
        ):
            return 1  # another sequence may be next: the cache changed, or some were given up
        return self._steps_of_decodes()

    def _steps_of_decodes(self) -> int:
        """Return the steps until a decode ends or a block is missing."""
        decodes = self._decodes
        limit = decodes.steps_to_end()
        if limit == 1 or not self._grows:
            return limit
        granted = decodes.granted_step - decodes.steps
        return granted + self.memory.repeatable_steps(decodes, limit - granted)

    def changes_batch(self, seq: Sequence) -> bool:
        """Return whether ``seq``, just added, is next and has a slot, or is one too many."""
        if self._limited is not None and self.over_limit():
            return True
        return self._has_slot() and self._waiting.head() is seq
