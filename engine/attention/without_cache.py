"""Attention without a KV cache: every row of a step is computed from the tokens before it."""

from servetwin.engine.attention.step_attention import Attend, AttentionBackend, DecodeStep
from servetwin.policies.batch import ScheduledSequence


class WithoutCache(AttentionBackend):
    """Prompts as long as the contexts: nothing is stored, and nothing is read."""

    name = "without-cache"

    def plan(self, entries: list[ScheduledSequence], decodes: int | None = 0) -> Attend:
        """Prepare ``entries`` that all begin at position 0; none may be a decode."""
        return self.plan_prompts(entries)

    def plan_decodes(self, entries: list[ScheduledSequence], window: int | None) -> DecodeStep:
        """Raise: a decode would read what is not stored."""
        raise AssertionError("there are no decodes without a KV cache")
