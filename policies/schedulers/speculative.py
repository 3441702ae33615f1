"""Decodes that verify drafts: several tokens of a sequence may come out of one pass.

A decode computes its own row and those of ``draft_rows`` drafted tokens; the accepted ones and one
more come out (Leviathan et al., ICML 2023; Chen et al., 2023). Trees, blocks of parallel heads and
refined diffusion blocks are the same to a scheduler: so many rows, and a number of tokens that is
known afterwards. With ``prompt_token`` off the pass of a prompt yields no token: the first ones are
those of the first block (diffusion).
"""

from dataclasses import replace

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.protocols import KVMemory
from servetwin.policies.schedulers.admission import Reserved, whole
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class SpeculativeBatching(ContinuousBatching):
    """Continuous batching whose decodes are chunks of 1 + ``draft_rows`` rows, the first in a step.

    The simulator or engine sets what comes of the drafts (``DraftedDecodes.set_schedule``); nothing
    here decides by that. Drafts are as many at the end of an answer as anywhere; what comes out
    beyond ``max_tokens`` is cut. Every sequence reserves its whole length and the rows of its last
    drafts, so nothing is ever preempted. Without drafts this is continuous batching with full
    admission.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        drafts = config.draft_rows
        decodes = DraftedDecodes(1 + drafts) if drafts else None
        last_rows = drafts + (not config.prompt_token) if drafts else 0
        config = replace(config, admission="full")
        super().__init__(memory, config, whole, Reserved(memory, last_rows), decodes)

    def schedule(self, now_s: float) -> Batch | None:
        """Return the decodes with their drafts, and prompts as in continuous batching."""
        batch = super().schedule(now_s)
        if self.config.draft_rows and batch is not None:
            batch.drafted = self.decodes.size
            batch.prompt_token = self.config.prompt_token
        return batch
