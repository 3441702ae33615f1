"""Shared prefixes of generated prompts, as chained block ids."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import isfinite

import numpy as np

from workloads.errors import TraceError
from workloads.lengths import IntArray


@dataclass(frozen=True, slots=True)
class PrefixGroups:
    """Each prompt begins with the prefix of one of ``groups`` groups, as system prompts do.

    Group k (from 1) is drawn with probability proportional to k^-zipf; 0 is uniform. The prompt
    keeps its length: it is min(prefix_tokens, prompt - 1) shared tokens and a unique rest, so that
    no two prompts are equal. Only blocks that lie within the shared part carry shared ids.
    """

    groups: int
    prefix_tokens: int
    zipf: float = 1.0
    block_tokens: int = 16

    def __post_init__(self) -> None:
        if min(self.groups, self.prefix_tokens, self.block_tokens) < 1:
            raise TraceError(f"groups, prefix and block tokens must be at least 1: {self}")
        if not (isfinite(self.zipf) and self.zipf >= 0):
            raise TraceError(f"the Zipf exponent must be 0 or positive, not {self.zipf:g}")

    def block_ids(self, prompts: IntArray, rng: np.random.Generator) -> list[tuple[int, ...]]:
        """ceil(prompt / block_tokens) chained ids for each of the prompt lengths.

        Group k's prefix has the ids from k P, P = prefix_tokens // block_tokens; unique ids follow.
        """
        weights = np.arange(1, self.groups + 1, dtype=np.float64) ** -self.zipf
        drawn = rng.choice(self.groups, size=len(prompts), p=weights / weights.sum())
        unique_ids = count(self.groups * self._prefix_blocks)
        return [
            tuple(self._chain(group, prompt_tokens, unique_ids))
            for group, prompt_tokens in zip(drawn.tolist(), prompts.tolist(), strict=True)
        ]

    @property
    def _prefix_blocks(self) -> int:
        return self.prefix_tokens // self.block_tokens

    def _chain(self, group: int, prompt_tokens: int, unique_ids: Iterator[int]) -> Iterator[int]:
        shared = min(self.prefix_tokens, prompt_tokens - 1) // self.block_tokens
        first = group * self._prefix_blocks
        yield from range(first, first + shared)
        for _ in range(-(-prompt_tokens // self.block_tokens) - shared):
            yield next(unique_ids)
