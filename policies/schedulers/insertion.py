"""Dynamic insertion: a fixed number of slots, refilled as their members end.

This is how Paddle's serving and FasterTransformer's interactive mode keep a batch full: the memory
of a slot is reserved for the whole answer, nothing is ever preempted, and a newcomer's prompt runs
whole in the slot that became free, beside the decodes of the others. With ``pad_newcomers``, the
prompts of one step are a matrix padded to the longest of them (fused_multi_transformer).
"""

from dataclasses import replace

from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.workloads.native_class import mypyc_attr

_NO_BUDGET = 1 << 60


@mypyc_attr(allow_interpreted_subclasses=True)
class DynamicInsertion(ContinuousBatching):
    """``max_seqs`` slots; every newcomer that finds one free is inserted at the next step."""

    has_token_budget = False

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, replace(config, admission="full"))
        self._token_budget = _NO_BUDGET
        self._pads = config.pad_newcomers

    def schedule(self, now_s: float) -> Batch | None:
        """Return the decodes, and the prompts that take free slots, padded where it is asked."""
        batch = super().schedule(now_s)
        if self._pads and batch is not None and len(batch.chunks) > 1:
            longest = max(chunk.tokens for chunk in batch.chunks)
            batch.chunks = tuple(_padded(chunk, longest) for chunk in batch.chunks)
        return batch


def _padded(chunk: ScheduledSequence, rows: int) -> ScheduledSequence:
    """Return the chunk with rows that are computed and thrown away, ``rows`` in all."""
    seq, start, tokens, samples, _ = chunk
    return ScheduledSequence(seq, start, tokens, samples, rows - tokens)
