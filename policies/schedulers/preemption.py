"""Which running sequence loses its memory when it runs out, and where its keys and values go.

The victim is recomputed later, or swapped to host memory and back (vLLM, SOSP 2023, section 4.5).
"""

from collections.abc import Callable, Reversible
from typing import TypeAlias

from servetwin.policies.batch import Batch, SwappedOut
from servetwin.policies.sequence import Sequence

Victim: TypeAlias = Callable[[list[Sequence], Reversible[Sequence]], Sequence]
"""From prompts in progress and decodes, not both empty: the sequence to preempt."""


def newest(prompts: list[Sequence], decodes: Reversible[Sequence]) -> Sequence:
    """Return the prompt in progress that came last, or the decode that joined last."""
    return prompts[-1] if prompts else next(reversed(decodes))


def lowest_priority(prompts: list[Sequence], decodes: Reversible[Sequence]) -> Sequence:
    """Return the sequence of the lowest priority, of equals the newest."""
    return min([*reversed(prompts), *reversed(decodes)], key=lambda seq: seq.priority)


def least_progress(prompts: list[Sequence], decodes: Reversible[Sequence]) -> Sequence:
    """Return the sequence with the fewest tokens out, of equals the newest."""
    return min([*reversed(prompts), *reversed(decodes)], key=lambda seq: seq.generated_tokens)


VICTIMS: dict[str, Victim] = {
    "newest": newest,
    "lowest-priority": lowest_priority,
    "least-progress": least_progress,
}


class Swap:
    """Host memory for ``capacity_tokens`` of preempted decodes, each kept as a whole or not."""

    def __init__(self, capacity_tokens: int) -> None:
        self._free_tokens = capacity_tokens

    def store(self, seq: Sequence, blocks: list[int], batch: Batch) -> bool:
        """Move a sequence out of ``blocks`` with this step; False, unchanged, without room."""
        if seq.computed_tokens > self._free_tokens:
            return False
        self._free_tokens -= seq.computed_tokens
        seq.held.on_host = True
        batch.swapped_tokens += seq.computed_tokens
        batch.swapped_out = [*batch.swapped_out, SwappedOut(seq, blocks)]
        return True

    def fetch(self, seq: Sequence) -> int:
        """Give back the room of a sequence that returns, or is aborted; return its tokens."""
        if not seq.held.on_host:
            return 0
        self._free_tokens += seq.computed_tokens
        seq.held.on_host = False
        return seq.computed_tokens
