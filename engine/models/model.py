"""The decoder: flat rows of a whole batch in, logits of the rows that sample out."""

from functools import partial

import torch
from torch import Tensor

from engine.attention.step_attention import Attend
from engine.models.feed_forward import FeedForward
from engine.models.linear import LinearMap, MakeLinear
from engine.models.model_config import ModelConfig
from engine.models.norms import rms_norm
from engine.models.rotary import RotaryTable
from engine.models.self_attention import SelfAttention
from engine.models.weights import LayerWeights, Weights


class Decoder:
    """A decoder of pre-normed layers, each an attention and a feed-forward network."""

    def __init__(self, config: ModelConfig, weights: Weights, make_linear: MakeLinear) -> None:
        self.config = config
        self._embedding = weights.embedding
        self._layers = [
            _Layer(config, index, layer, partial(_within, make_linear, f"layers.{index}"))
            for index, layer in enumerate(weights.layers)
        ]
        self._final_norm = weights.final_norm
        self._head = make_linear("head", weights.head)
        self._rotary = RotaryTable(config, weights.embedding.dtype, weights.embedding.device)

    @property
    def linear_backend(self) -> str:
        """Which kernel multiplies by the weights."""
        return self._head.backend

    def forward(
        self, token_ids: Tensor, positions: Tensor, length: int, attend: Attend, rows: Tensor
    ) -> Tensor:
        """Return float32 logits [len(rows), vocabulary] after the tokens in ``rows``.

        ``token_ids`` and ``positions`` are [rows of the batch]; every position is below
        ``length``.
        """
        x = self._embedding.index_select(0, token_ids)
        cos, sin = self._rotary.at(positions, length)
        for layer in self._layers:
            x = layer(x, cos, sin, attend)
        if not rows.shape[0]:
            return x.new_empty((0, self.config.vocab_size), dtype=torch.float32)
        x = rms_norm(x.index_select(0, rows), self._final_norm, self.config.norm_eps)
        return self._head(x).float()


def _within(make_linear: MakeLinear, place: str, name: str, weight: Tensor) -> LinearMap:
    return make_linear(f"{place}.{name}", weight)


class _Layer:
    def __init__(
        self, config: ModelConfig, index: int, weights: LayerWeights, make_linear: MakeLinear
    ) -> None:
        self._eps = config.norm_eps
        self._attention_norm = weights.attention_norm
        self._attention = SelfAttention(config, index, weights.attention, make_linear)
        self._ffn_norm = weights.ffn_norm
        self._ffn = FeedForward(weights.ffn, make_linear)

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        x = x + self._attention(rms_norm(x, self._attention_norm, self._eps), cos, sin, attend)
        return x + self._ffn(rms_norm(x, self._ffn_norm, self._eps))
