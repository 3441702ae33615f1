"""Which running sequence loses its memory when it runs out, and where its keys and values go.

The victim is recomputed later, or swapped to host memory and back (vLLM, SOSP 2023, section 4.5).
"""

from collections.abc import Callable, Reversible
from typing import TYPE_CHECKING, TypeAlias

from servetwin.policies.config import PolicyConfig
from servetwin.policies.sequence import Sequence

if TYPE_CHECKING:
    from servetwin.policies.kv.swap import Swap

# From prompts in progress and decodes, not both empty: the sequence to preempt.
Victim: TypeAlias = Callable[[list[Sequence], Reversible[Sequence]], Sequence]


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


def swap_for(config: PolicyConfig) -> "Swap":
    """Return the host memory of a server that swaps."""
    from servetwin.policies.kv.swap import Swap

    return Swap(config.host_kv_tokens)
