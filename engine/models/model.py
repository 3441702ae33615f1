"""The decoder: flat rows of a whole batch in, logits of the rows that sample out."""

from copy import copy

import torch
from torch import Tensor

from servetwin.engine.attention.step_attention import Attend
from servetwin.engine.kernels.choose_operators import operators_for
from servetwin.engine.models.experts import Experts, FeedForward
from servetwin.engine.models.latent_attention import LatentAttention
from servetwin.engine.models.linear import MakeLinear, within
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.operators import Operators
from servetwin.engine.models.rotary import RotaryTable
from servetwin.engine.models.self_attention import SelfAttention, SharedAttention
from servetwin.engine.models.weights import ExpertWeights, LatentWeights, LayerWeights, Weights


class Decoder:
    """A decoder of pre-normed layers, each an attention and a feed-forward network."""

    def __init__(self, config: ModelConfig, weights: Weights, make_linear: MakeLinear) -> None:
        self.config = config
        self._embedding = weights.embedding
        operators = self._operators = operators_for(weights.embedding.device)
        distinct = [
            _Layer(config, index, layer, within(make_linear, f"layers.{index}"), operators)
            for index, layer in zip(config.distinct_layers, weights.layers, strict=True)
        ]
        self.absorbed_bytes = sum(layer.absorbed_bytes for layer in distinct)
        """Size of the weights that no product of ``make_linear`` has."""
        self._layers = [layer for layer in distinct for _ in range(config.weight_sharing)]
        self._final_norm = weights.final_norm
        self._head = make_linear("head", weights.head)
        self._rotary = RotaryTable(config, weights.embedding.dtype, weights.embedding.device)

    @property
    def linear_backend(self) -> str:
        """Which kernel multiplies by the weights."""
        return self._head.backend

    def first_layers(self, layers: int) -> "Decoder":
        """Return the decoder of the first ``layers``, with the same weights, norm and head."""
        shallow = copy(self)
        shallow._layers = self._layers[:layers]
        return shallow

    def forward(
        self, token_ids: Tensor, positions: Tensor, length: int, attend: Attend, rows: Tensor
    ) -> Tensor:
        """Return float32 logits [len(rows), vocabulary] after the tokens in ``rows``.

        ``token_ids`` and ``positions`` are [rows of the batch]; every position is below
        ``length``.
        """
        x = self._embedding.index_select(0, token_ids)
        cos, sin = self._rotary.at(positions, length)
        delta: Tensor | None = None
        for index, layer in enumerate(self._layers):
            x, delta = layer(index, x, delta, cos, sin, attend)
        if not rows.shape[0]:
            return x.new_empty((0, self.config.vocab_size), dtype=torch.float32)
        x, delta = x.index_select(0, rows), None if delta is None else delta.index_select(0, rows)
        _, normed = self._operators.add_norm(x, delta, self._final_norm, self.config.norm_eps)
        return self._head(normed).float()


class _Layer:
    """Attention and feed-forward network, each added to the hidden state together with the norm
    that follows: so a layer takes what the one before has still to add, and leaves its own.
    """

    def __init__(
        self,
        config: ModelConfig,
        index: int,
        weights: LayerWeights,
        make_linear: MakeLinear,
        operators: Operators,
    ) -> None:
        self._operators = operators
        self._eps = config.norm_eps
        self._attention_norm = weights.attention_norm
        self._attention = attention = _attention(config, index, weights, make_linear, operators)
        self.absorbed_bytes = 0
        if isinstance(attention, LatentAttention):
            self.absorbed_bytes = attention.absorbed_bytes
        self._ffn_norm = weights.ffn_norm
        self._ffn = _feed_forward(config, weights, make_linear, operators)

    def __call__(
        self, index: int, x: Tensor, delta: Tensor | None, cos: Tensor, sin: Tensor, attend: Attend
    ) -> tuple[Tensor, Tensor]:
        x, normed = self._operators.add_norm(x, delta, self._attention_norm, self._eps)
        delta = self._attention(index, normed, cos, sin, attend)
        x, normed = self._operators.add_norm(x, delta, self._ffn_norm, self._eps)
        return x, self._ffn(normed)


def _attention(
    config: ModelConfig,
    index: int,
    weights: LayerWeights,
    make_linear: MakeLinear,
    operators: Operators,
) -> SelfAttention | SharedAttention | LatentAttention:
    if isinstance(weights.attention, LatentWeights):
        return LatentAttention(config, weights.attention, make_linear, operators)
    if not config.stores(index):
        return SharedAttention(config, weights.attention, make_linear, operators)
    return SelfAttention(config, weights.attention, make_linear, operators)


def _feed_forward(
    config: ModelConfig, weights: LayerWeights, make_linear: MakeLinear, operators: Operators
) -> FeedForward | Experts:
    if isinstance(weights.ffn, ExpertWeights):
        assert config.experts is not None
        return Experts(config.experts, weights.ffn, make_linear, operators)
    return FeedForward(weights.ffn, make_linear, operators)
