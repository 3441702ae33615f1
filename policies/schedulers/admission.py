"""When a waiting sequence may be admitted: which prompts a step takes, and what must fit memory."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from servetwin.policies.batch import Batch
from servetwin.policies.protocols import KVMemory
from servetwin.policies.sequence import Sequence

Joins: TypeAlias = Callable[[Batch, int, int], bool]
"""From a step, the rows that a prompt still needs, and those left of the budget: may it join?

``budget_count: padded`` replaces ``whole`` alone.
"""


def in_pieces(batch: Batch, rows: int, left: int) -> bool:
    """Let a piece of a prompt fill whatever rows are left (Sarathi-Serve, OSDI 2024)."""
    return True


def whole(batch: Batch, rows: int, left: int) -> bool:
    """Let prompts join whole; the first of a step may be split, so that none starves."""
    return not batch.chunks or rows <= left


def padded(batch: Batch, rows: int, left: int) -> bool:
    """Let prompts join whole, each counted as long as the longest of the step (vLLM 0.2)."""
    prompts = [entry.tokens for entry in batch.chunks]
    return not prompts or (len(prompts) + 1) * max(rows, *prompts) <= left + sum(prompts)


class Reserved:
    """A memory that gives a sequence room for its whole length at once; its decode lacks none.

    ``lookahead`` positions behind its answer are its own, too.
    """

    def __init__(self, memory: KVMemory, lookahead: int = 0) -> None:
        self._memory = memory
        self._lookahead = lookahead

    def refusal(self, seq: Sequence) -> str | None:
        """Return why ``seq`` can never be held, even alone; None where it can."""
        extra = self._lookahead
        seq.max_tokens += extra
        reason = self._memory.refusal(seq)
        seq.max_tokens -= extra
        return f"{reason}; {extra} of its positions are for drafts" if reason and extra else reason

    def reserve(self, seq: Sequence, tokens: int) -> bool:
        """Take in a sequence with room for all that it will ever hold; False without room."""
        seq.max_tokens += self._lookahead
        reserved = self._memory.reserve(seq, seq.final_kv_tokens)
        seq.max_tokens -= self._lookahead
        return reserved

    def fork(self, seq: Sequence, child: Sequence, tokens: int) -> bool:
        """Share the full blocks of ``seq`` with ``child``, which gets room for all the rest."""
        return self._memory.fork(seq, child, seq.final_kv_tokens + self._lookahead)


def peak_tokens(seqs: Iterable[Sequence]) -> int:
    """Return the positions that sequences hold at their peak, as far as their lengths are declared.

    The sequence with the fewest tokens left ends first. So memory peaks at the end of one of them,
    when it and all that have as many or more left are still there (LightLLM's admission).
    One that does not decode yet counts as if its prompt were computed and its next token out.
    """
    lengths = []
    for seq in seqs:
        generated = seq.generated_tokens + (seq.lockstep is None)
        lengths.append((seq.max_tokens - generated - 1, seq.prompt_tokens + generated))
    lengths.sort(reverse=True)
    held = peak = 0
    for place, (left, tokens) in enumerate(lengths, 1):
        held += tokens
        peak = max(peak, held + place * max(0, left))
    return peak
