"""Which running sequence loses its memory when it runs out, and where its keys and values go.

The victim is recomputed later, or swapped to host memory and back (vLLM, SOSP 2023, section 4.5).
"""

from collections.abc import Reversible

from servetwin.policies.config import Victim
from servetwin.policies.sequence import Sequence


def choose_victim(
    victim: Victim, decodes: Reversible[Sequence], prefilling: list[Sequence]
) -> Sequence:
    """Return the sequence to preempt; of equals the newest. At least one sequence must run."""
    if victim == "newest":
        return prefilling[-1] if prefilling else next(reversed(decodes))
    newest_first = [*reversed(prefilling), *reversed(decodes)]
    if victim == "lowest-priority":
        return min(newest_first, key=lambda seq: seq.priority)
    return min(newest_first, key=lambda seq: seq.generated_tokens)


class HostMemory:
    """Room for ``capacity_tokens`` of swapped sequences, each kept as a whole or not at all."""

    def __init__(self, capacity_tokens: int) -> None:
        self._free_tokens = capacity_tokens

    def store(self, seq: Sequence) -> bool:
        """Keep the computed tokens of a sequence; False, and nothing changed, without room."""
        if seq.computed_tokens > self._free_tokens:
            return False
        self._free_tokens -= seq.computed_tokens
        seq.on_host = True
        return True

    def fetch(self, seq: Sequence) -> None:
        """Give back the room of a sequence that is on the device again, or has ended."""
        self._free_tokens += seq.computed_tokens
        seq.on_host = False
