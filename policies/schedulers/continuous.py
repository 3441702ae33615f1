"""Continuous (iteration-level) batching: whole prompts run beside the decodes (Orca, OSDI 2022)."""

from servetwin.policies.batch import Batch
from servetwin.policies.schedulers.iteration_level import IterationBatching
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class ContinuousBatching(IterationBatching):
    """At most ``token_budget`` rows a step, decodes first; prompts join whole, in order.

    The first prompt of a step is split where it does not fit what the decodes leave of the
    budget, so that a long prompt is neither refused nor starved; the others wait for a step that
    holds them whole. With ``budget_count: padded`` they count as a matrix padded to the longest of
    them, as in vLLM 0.2.
    """

    def _may_join(self, head: Sequence, left: int, batch: Batch) -> bool:
        """Return whether a prompt is the first of the step, decodes at once, or fits whole."""
        if not batch.chunks or head.computed_tokens:
            return True
        rows = head.total_tokens - self.memory.cached_prefix(head)
        if self._rules.budget_count == "padded":
            return _fits_padded(rows, left, batch)
        return rows <= left


def _fits_padded(rows: int, left: int, batch: Batch) -> bool:
    """Return whether a step whose prompts are padded has room for one more of ``rows`` rows."""
    prompts = [entry.tokens for entry in batch.chunks]
    return (len(prompts) + 1) * max(rows, *prompts) <= left + sum(prompts)
