"""Dynamic insertion: a fixed number of slots, refilled as their members end.

This is how Paddle's serving and FasterTransformer's interactive mode keep a batch full: the memory
of a slot is reserved for the whole answer, nothing is ever preempted, and a newcomer's prompt runs
whole in the slot that became free, beside the decodes of the others.
"""

from dataclasses import replace

from policies.config import PolicyConfig
from policies.protocols import KVMemory
from policies.schedulers.continuous import ContinuousBatching
from workloads.native_class import mypyc_attr

_NO_BUDGET = 1 << 60


@mypyc_attr(allow_interpreted_subclasses=True)
class DynamicInsertion(ContinuousBatching):
    """``max_seqs`` slots; every newcomer that finds one free is inserted at the next step."""

    has_token_budget = False

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, replace(config, admission="full"))
        self._token_budget = _NO_BUDGET
