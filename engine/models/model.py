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
        self._norm = partial(_add_norm, operators, config)
        made = partial(_Layer, operators=operators, skippable=self.skippable)
        layers = [
            made(config, index, layer, within(make_linear, f"layers.{index}"))
            for index, layer in zip(config.distinct_layers, weights.layers, strict=True)
        ]
        self.absorbed_bytes = sum(layer.absorbed_bytes for layer in layers)
        """Size of the weights that no product of ``make_linear`` has."""
        self._layers = [layer for layer in layers for _ in range(config.weight_sharing)]
        self._final_norm = weights.final_norm
        self._head = make_linear("head", weights.head)
        dtype, device = weights.embedding.dtype, weights.embedding.device
        thetas = config.layer_thetas or (config.rope_theta,) * config.layers
        distinct = list(dict.fromkeys(thetas))
        self._tables = [RotaryTable(config.turned(theta), dtype, device) for theta in distinct]
        self._table_of = [distinct.index(theta) for theta in thetas]

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
        if self.config.embedding_scale != 1.0:
            x = x * self.config.embedding_scale
        turns = [table.at(positions, length) for table in self._tables]
        delta: Tensor | None = None
        for index, layer in enumerate(self._layers):
            x, delta = layer(index, x, delta, *turns[self._table_of[index]], attend)
        if not rows.shape[0]:
            return x.new_empty((0, self.config.vocab_size), dtype=torch.float32)
        x, delta = x.index_select(0, rows), None if delta is None else delta.index_select(0, rows)
        _, normed = self._norm(x, delta, self._final_norm)
        logits: Tensor = self._head(normed).float()
        return logits if self.config.logit_scale == 1.0 else logits * self.config.logit_scale


def _add_norm(
    operators: Operators, config: ModelConfig, x: Tensor, delta: Tensor | None, norm: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return ``x + delta`` (None: nothing is added) and its norm; without ``norm`` the same."""
    if norm is not None and not config.norms.centred:
        return operators.add_norm(x, delta, norm, config.norm_eps)
    x = x if delta is None else x + delta
    return x, x if norm is None else operators.layer_norm(x, norm, config.norm_eps)


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
        self._residual_scale = config.residual_scale
        self._norm = partial(_add_norm, operators, config)
        self._attention_norm = weights.get("attention_norm")
        self._after_attention = weights.get("attention_after_norm")
        self._ffn_norm, self._after_ffn = weights.get("ffn_norm"), weights.get("ffn_after_norm")
        self._parallel = self._ffn_norm is None and self._after_attention is None
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
        self._ffn = (
            Experts(experts, *shared)
            if experts
            else FeedForward(*shared, activation=config.activation)
        )

    def __call__(
        self, index: int, x: Tensor, delta: Tensor | None, cos: Tensor, sin: Tensor, attend: Attend
    ) -> tuple[Tensor, Tensor]:
        x, normed = self._norm(x, delta, self._attention_norm)
        delta = self._added(self._attention(index, normed, cos, sin, attend), self._after_attention)
        if self._parallel:
            return x, delta + self._ffn(normed)
        x, normed = self._norm(x, delta, self._ffn_norm)
        return x, self._added(self._ffn(normed), self._after_ffn)

    def _added(self, output: Tensor, norm: Tensor | None) -> Tensor:
        """Return what the output of attention or network adds to the hidden state."""
        if norm is not None:
            output = self._operators.rms_norm(output, norm, self._eps)
        return output if self._residual_scale == 1.0 else output * self._residual_scale

    def skip(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values [rows, kv heads, head dim] of rows that skip the layer."""
        assert isinstance(self._attention, SelfAttention)
        assert self._attention_norm is not None
        normed = self._operators.rms_norm(x, self._attention_norm, self._eps)
        return self._attention.keys_values(normed, cos, sin)
