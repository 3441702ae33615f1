"""The decoder: flat rows of a whole batch in, logits of the rows that sample out.

``AddNorm``: ``x + delta`` (None: nothing is added) and its norm.
"""

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from servetwin.engine.attention.score_rules import ScoreRules
from servetwin.engine.attention.step_attention import Attend
from servetwin.engine.kernels.choose_operators import operators_for
from servetwin.engine.kv.state_store import StateStep
from servetwin.engine.models.experts import Experts, FeedForward
from servetwin.engine.models.linear import MakeLinear, within
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.operators import Operators
from servetwin.engine.models.rotary import RotaryTable
from servetwin.engine.models.self_attention import LatentAttention, SelfAttention
from servetwin.engine.models.state_space import StateSpace
from servetwin.engine.models.weights import LayerWeights, Weights

AddNorm = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]


class Decoder:
    """A decoder of layers, each an attention or a state, and a feed-forward network.

    ``absorbed_bytes``: size of the weights that no product of ``make_linear`` has.
    ``score_rules``: how attention scores; None: as is usual.
    """

    skippable = False
    """Whether rows may skip layers, which store their keys and values all the same."""

    def __init__(self, config: ModelConfig, weights: Weights, make_linear: MakeLinear) -> None:
        self.config = config
        self._embedding = weights.embedding
        operators = self._operators = operators_for(weights.embedding.device)
        final = {"final_norm": weights.final_norm} | dict(weights.others)
        self._norm = _norm("final_norm", final, operators, config)
        made = partial(_Layer, operators=operators, skippable=self.skippable)
        layers = [
            made(config, index, layer, within(make_linear, f"layers.{index}"))
            for index, layer in zip(config.distinct_layers, weights.layers, strict=True)
        ]
        self.absorbed_bytes = sum(layer.absorbed_bytes for layer in layers)
        self._layers = [layer for layer in layers for _ in range(config.weight_sharing)]
        kinds = [layer.keeps_state for layer in self._layers]
        self._places = [kinds[:index].count(kind) for index, kind in enumerate(kinds)]
        # among the layers of its kind
        self._positions = weights.others.get("positions")
        self.score_rules = ScoreRules.of(config, [layer.sinks for layer in self._layers])
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
        self, token_ids: Tensor, positions: Tensor, length: int, attend: Attend | None,
        rows: Tensor, states: StateStep | None = None,
    ) -> Tensor:  # fmt: skip
        """Return float32 logits [len(rows), vocabulary] after the tokens in ``rows``.

        ``token_ids`` and ``positions`` are [rows of the batch]; every position is below
        ``length``. ``attend`` is that of the layers with attention, ``states`` of the others.
        """
        x = self._embedding.index_select(0, token_ids)
        if self.config.embedding_scale != 1.0:
            x = x * self.config.embedding_scale
        if self._positions is not None:
            x = x + self._positions.index_select(0, positions + (self.config.more_positions or 0))
        turns = [table.at(positions, length) for table in self._tables]
        delta: Tensor | None = None
        for index, layer in enumerate(self._layers):
            memory = states if layer.keeps_state else attend
            turn = turns[self._table_of[index]]
            x, delta = layer(self._places[index], x, delta, *turn, memory)
        if not rows.shape[0]:
            return x.new_empty((0, self.config.vocab_size), dtype=torch.float32)
        x, delta = x.index_select(0, rows), None if delta is None else delta.index_select(0, rows)
        _, normed = self._norm(x, delta)
        logits: Tensor = self._head(normed).float()
        if (cap := self.config.logit_cap) is not None:
            logits = cap * (logits / cap).tanh()
        return logits if self.config.logit_scale == 1.0 else logits * self.config.logit_scale


def _norm(
    name: str, weights: Mapping[str, Tensor], operators: Operators, config: ModelConfig
) -> AddNorm:
    """Return what adds and norms by the weights of a name; without such, what adds alone."""
    weight, bias, eps = weights.get(name), weights.get(f"{name}_bias"), config.norm_eps
    if weight is not None and not config.norms.centred:
        return partial(operators.add_norm, weight=weight, eps=eps)

    def add_norm(x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        x = x if delta is None else x + delta
        return x, x if weight is None else operators.layer_norm(x, weight, bias, eps)

    return add_norm


class _Layer:
    """Attention (or a state) and feed-forward network (or none), each added to the hidden state
    together with the norm that follows: so a layer takes what the one before has still to add, and
    leaves its own.
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
        self._norm = _norm("attention_norm", weights, operators, config)
        self._ffn_norm = _norm("ffn_norm", weights, operators, config)
        self._after_attention = weights.get("attention_after_norm")
        self._after_ffn = weights.get("ffn_after_norm")
        self._parallel, self._own_norm = config.norms.parallel, "ffn_norm" in weights
        shared = weights, make_linear, operators
        self.sinks = weights.get("sinks")
        self.stores = config.stores(index)
        self.keeps_state = config.keeps_state(index)
        self._attention: LatentAttention | SelfAttention | StateSpace
        if self.keeps_state:
            self._attention = StateSpace(config, weights, make_linear)
        elif config.latent:
            self._attention = LatentAttention(config, *shared)
        else:
            self._attention = SelfAttention(
                config, *shared, stores=self.stores, skippable=skippable, index=index
            )
        self.absorbed_bytes = self._attention.absorbed_bytes
        experts = config.experts if config.has_experts(index) else None
        self._ffn: Experts | FeedForward | None = None
        if experts:
            self._ffn = Experts(experts, *shared, activation=config.activation)
        elif config.has_ffn(index):
            self._ffn = FeedForward(*shared, activation=config.activation)

    def __call__(
        self, place: int, x: Tensor, delta: Tensor | None, cos: Tensor, sin: Tensor, memory: Any
    ) -> tuple[Tensor, Tensor]:
        x, normed = self._norm(x, delta)
        delta = self._added(self._attention(place, normed, cos, sin, memory), self._after_attention)
        if self._ffn is None:
            return x, delta
        if self._parallel:
            if self._own_norm:
                _, normed = self._ffn_norm(x, None)
            return x, delta + self._ffn(normed)
        x, normed = self._ffn_norm(x, delta)
        return x, self._added(self._ffn(normed), self._after_ffn)

    def _added(self, output: Tensor, norm: Tensor | None) -> Tensor:
        """Return what the output of attention or network adds to the hidden state."""
        if norm is not None:
            output = self._operators.rms_norm(output, norm, self._eps)
        return output if self._residual_scale == 1.0 else output * self._residual_scale

    def skip(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values [rows, kv heads, head dim] of rows that skip the layer."""
        assert isinstance(self._attention, SelfAttention)
        _, normed = self._norm(x, None)
        return self._attention.keys_values(normed, cos, sin)
