"""Whom to preempt when the running sequences need more memory than there is."""

from policies.config import Victim
from policies.lockstep import Lockstep
from policies.sequence import Sequence


def choose_victim(victim: Victim, decodes: Lockstep, prefilling: list[Sequence]) -> Sequence:
    """The sequence to preempt; ties go to the newest. At least one sequence must run."""
    if victim == "newest":
        return prefilling[-1] if prefilling else next(reversed(decodes))
    newest_first = [*reversed(prefilling), *reversed(decodes)]
    if victim == "lowest-priority":
        return min(newest_first, key=lambda seq: seq.priority)
    return min(newest_first, key=lambda seq: seq.generated_tokens)
