"""The decoder: flat rows of a whole batch in, logits of the rows that sample out."""

from copy import copy
from functools import partial

import torch
from torch import Tensor

from servetwin.engine.attention.step_attention import Attend
from servetwin.engine.kernels.choose_operators import operators_for
from servetwin.engine.models.experts import Experts, FeedForward
from servetwin.engine.models.linear import MakeLinear, within
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.operators import Operators
from servetwin.engine.models.rotary import RotaryTable
from servetwin.engine.models.self_attention import LatentAttention, SelfAttention
from servetwin.engine.models.weights import LayerWeights, Weights


class Decoder:
    """A decoder of pre-normed layers, each an attention and a feed-forward network."""

    skippable = False
    """Whether rows may skip layers, which store their keys and values all the same."""

    def __init__(self, config: ModelConfig, weights: Weights, make_linear: MakeLinear) -> None:
        self.config = config
        self._embedding = weights.embedding
        operators = self._operators = operators_for(weights.embedding.device)
        made = partial(_Layer, operators=operators, skippable=self.skippable)
        distinct = [
            made(config, index, layer, within(make_linear, f"layers.{index}"))
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
        *,
        operators: Operators,
        skippable: bool,
    ) -> None:
        self._operators = operators
        self._eps = config.norm_eps
        self._attention_norm, self._ffn_norm = weights["attention_norm"], weights["ffn_norm"]
        shared = weights, make_linear, operators
        self.stores = config.stores(index)
        """Whether it has keys and values of its own."""
        self._attention = (
            LatentAttention(config, *shared)
            if config.latent
            else SelfAttention(config, *shared, stores=self.stores, skippable=skippable)
        )
        self.absorbed_bytes = self._attention.absorbed_bytes
        experts = config.experts if config.has_experts(index) else None
        self._ffn = Experts(experts, *shared) if experts else FeedForward(*shared)

    def __call__(
        self, index: int, x: Tensor, delta: Tensor | None, cos: Tensor, sin: Tensor, attend: Attend
    ) -> tuple[Tensor, Tensor]:
        x, normed = self._operators.add_norm(x, delta, self._attention_norm, self._eps)
        delta = self._attention(index, normed, cos, sin, attend)
        x, normed = self._operators.add_norm(x, delta, self._ffn_norm, self._eps)
        return x, self._ffn(normed)

    def skip(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values [rows, kv heads, head dim] of rows that skip the layer."""
        assert isinstance(self._attention, SelfAttention)
        normed = self._operators.rms_norm(x, self._attention_norm, self._eps)
        return self._attention.keys_values(normed, cos, sin)
