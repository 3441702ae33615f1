"""Prefill first (vLLM before its version 1): new prompts pause the decodes."""

from policies.batch import Batch
from policies.schedulers.continuous import ContinuousBatching
from workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class PrefillFirst(ContinuousBatching):
    """A step is either prompts, whole as far as ``token_budget`` allows, or decodes.

    As long as a prompt can be admitted, the decodes wait: short TTFT, at the price of stalls.
    """

    def schedule(self, now_s: float) -> Batch | None:
        """Prompts if there are any to run, else the decodes."""
        if not (self._waiting.size or self._prefilling):
            return super().schedule(now_s)
        batch = Batch()
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
