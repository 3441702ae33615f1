"""Prefix block ids of prompts that were made shorter or longer."""

from collections import defaultdict
from fractions import Fraction
from math import ceil, floor

from workloads.request import Request


class ScaledPrefixes:
    """Gives chained ids to scaled prompts so that sharing scales with the prompts.

    A block of b tokens becomes one of b' = max(1, round(f b)), which need not be f b. So the new
    ids are not the old ones: new block j ends at token (j + 1) b', which was token (j + 1) b' / f
    of the old prompt, and it takes its identity from j and from the old (chained) id of the block
    that holds this token, or from the last old id at the end of the prompt. Therefore:

    * requests that shared m old blocks share floor(m b f / b') new ones, as far as they are long
      enough: the last part of a block may be lost, nothing else;
    * they never share more tokens than max(1, round(m b f)).

    A prompt whose ids covered it whole has ceil(prompt' / b') new ids; one with full blocks only
    has floor of what its ids covered.
    """

    def __init__(self, factor: Fraction) -> None:
        self._factor = factor
        self._new_ids: defaultdict[tuple[int, int, int], int] = defaultdict(
            lambda: len(self._new_ids)
        )

    def block_tokens(self, block_tokens: int) -> int:
        """Return the scaled block size b', at least 1 token."""
        return max(1, round(block_tokens * self._factor))

    def ids(self, request: Request, scaled_prompt_tokens: int) -> tuple[int, ...]:
        """Return the ids of the request's prompt scaled to ``scaled_prompt_tokens``."""
        old_ids, old_block = request.prefix_block_ids, request.block_tokens
        if not old_ids or old_block is None:
            return ()
        new_block = self.block_tokens(old_block)
        step = new_block / (old_block * self._factor)  # old blocks per new block
        if len(old_ids) * old_block >= request.prompt_tokens:
            count = ceil(Fraction(scaled_prompt_tokens, new_block))
        else:
            count = min(floor(len(old_ids) / step), scaled_prompt_tokens // new_block)
        return tuple(
            self._new_ids[old_block, old_ids[min(end, len(old_ids)) - 1], block]
            for block, end in enumerate(_ends(step, count))
        )


def _ends(step: Fraction, count: int) -> list[int]:
    """Return ceil(step), ceil(2 step), ... by integer arithmetic: a prompt may have thousands of
    blocks.
    """
    over, under = step.numerator, step.denominator
    return [-(-block * over // under) for block in range(1, count + 1)]
