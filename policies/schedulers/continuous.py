"""Continuous (iteration-level) batching: whole prompts run beside the decodes (Orca, OSDI 2022)."""

from policies.batch import Batch
from policies.schedulers.iteration_level import IterationBatching
from policies.sequence import Sequence
from workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class ContinuousBatching(IterationBatching):
    """At most ``token_budget`` rows a step, decodes first; prompts join whole, in order.

    The first prompt of a step is split where it does not fit what the decodes leave of the
    budget, so that a long prompt is neither refused nor starved; the others wait for a step that
    holds them whole.
    """

    def _may_join(self, head: Sequence, left: int, batch: Batch) -> bool:
        """Return whether a prompt is the first of the step, decodes at once, or fits whole."""
        if not batch.chunks or head.computed_tokens:
            return True
        return head.total_tokens - self.memory.cached_prefix(head) <= left
