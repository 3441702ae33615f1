"""Scores of other rules than scaled products: caps, ALiBi, sinks with scores of their own.

Scores are made one by one, in float32: no kernel here knows such rules.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from servetwin.engine.models.model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class ScoreRules:
    """The rules of a model; ``sinks`` [heads] are by layer."""

    model: ModelConfig
    slopes: Tensor | None
    """By how much each head lowers its scores for every token of distance (ALiBi)."""
    sinks: Sequence[Tensor | None]

    @classmethod
    def of(cls, model: ModelConfig, sinks: Sequence[Tensor | None]) -> "ScoreRules | None":
        """Return the rules of a model; None where kernels know them."""
        if model.plain_scores:
            return None
        slopes = alibi_slopes(model.heads) if model.alibi else None
        return cls(model, slopes, sinks)

    def __call__(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Attend as ``scaled_dot_product_attention`` does: [kv heads, group, rows, width].

        The rows are those of the last keys; without a ``mask`` each sees the keys up to its own.
        """
        kv_heads, group, rows, width = queries.shape
        places = torch.arange(keys.shape[2], device=keys.device)
        own = places[len(places) - rows :].unsqueeze(1)
        scores = queries.float() @ keys.float().transpose(2, 3) * width**-0.5
        if (cap := self.model.score_cap) is not None:
            scores = cap * (scores / cap).tanh()
        if self.slopes is not None:
            lowered = self.slopes.to(keys.device).view(kv_heads, group, 1, 1) * places
            scores = scores + lowered.bfloat16().float() * width**-0.5
        scores = scores.masked_fill(places > own, -torch.inf) if mask is None else scores + mask
        return (self._shares(layer, scores) @ values.float()).to(values.dtype)

    def _shares(self, layer: int, scores: Tensor) -> Tensor:
        """Return the softmax, of which the sinks take a part."""
        sinks = self.sinks[layer]
        if sinks is None:
            return scores.softmax(-1)
        beside = sinks.float().view(*scores.shape[:2], 1, 1).expand(*scores.shape[:3], 1)
        return torch.cat((scores, beside), -1).softmax(-1)[..., :-1]


def alibi_slopes(heads: int) -> Tensor:
    """Return 2^(-8 i / n) for the i-th of n heads; where n is no power of two, those of the one
    below, then every other one of the one above. Rounded to bfloat16, as checkpoints expect.
    """
    lower = 1 << int(math.log2(heads))
    powers = [2 ** (-8 * i / lower) for i in range(1, lower + 1)]
    powers += [2 ** (-4 * i / lower) for i in range(1, 2 * (heads - lower), 2)]
    return torch.tensor(powers).bfloat16().float()
