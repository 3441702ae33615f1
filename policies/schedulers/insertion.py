"""Dynamic insertion: a fixed number of slots, refilled as their members end.

This is how Paddle's serving and FasterTransformer's interactive mode keep a batch full: the memory
of a slot is reserved for the whole answer, nothing is ever preempted, and a newcomer's prompt runs
whole in the slot that became free, beside the decodes of the others. With ``pad_newcomers``, the
prompts of one step are a matrix padded to the longest of them (fused_multi_transformer).
"""

from dataclasses import replace

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory
from servetwin.policies.schedulers.admission import in_pieces
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.workloads.native_class import mypyc_attr

_NO_BUDGET = 1 << 60


@mypyc_attr(allow_interpreted_subclasses=True)
class DynamicInsertion(ContinuousBatching):
    """``max_seqs`` slots; every newcomer that finds one free is inserted at the next step."""

    has_token_budget = False

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, replace(config, admission="full"), in_pieces)
        self.budget = _NO_BUDGET

    def schedule(self, now_s: float) -> Batch | None:
        """Return the decodes, and the prompts that take free slots, padded where it is asked."""
        batch = super().schedule(now_s)
        if self.config.pad_newcomers and batch is not None and batch.chunks:
            longest = max(chunk.tokens for chunk in batch.chunks)
            batch.chunks = [c._replace(padding=longest - c.tokens) for c in batch.chunks]
        return batch
