"""Early exit: rows that leave the layers before the last one (CALM, Schuster et al., 2022).

The layers that a row has skipped get its keys and values all the same, made of the state in which
it left: later tokens attend to it in every layer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from servetwin.engine.attention.step_attention import Attend
from servetwin.engine.kernels.choose_operators import operators_for
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.linear import LinearMap, MakeLinear
from servetwin.engine.models.model import Decoder
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.operators import Operators
from servetwin.engine.models.weights import AttentionWeights, LayerWeights, Weights
from servetwin.engine.native.linear import NativeLinear
from servetwin.workloads.errors import EngineError


@dataclass(frozen=True, slots=True)
class Stage:
    """What changes before a layer: some of the rows that went so far leave."""

    stay: Tensor
    leave: Tensor
    slots: Tensor
    """Where the keys and values of the leaving rows belong."""
    attend: Attend | None
    """Attention of the rows that stay; None where none does."""


class ExitingDecoder(Decoder):
    """A decoder of which rows may leave early."""

    def __init__(self, config: ModelConfig, weights: Weights, make_linear: MakeLinear) -> None:
        self._skipped: list[_SkippedLayer | None] = []
        products: dict[str, LinearMap] = {}

        def make(name: str, weight: Tensor) -> LinearMap:
            products[name] = make_linear(name, weight)
            return products[name]

        layers = self._noticing(config, weights, make, products)
        super().__init__(config, replace(weights, layers=layers), make)

    def forward_leaving(
        self,
        token_ids: Tensor,
        positions: Tensor,
        length: int,
        attend: Attend | None,
        stages: Mapping[int, Stage],
        store: KVStore,
        rows: Tensor,
    ) -> Tensor:
        """Return logits as ``forward`` does; ``stages`` are by the layer before which they are.

        ``rows`` count those that stay to the end first, then those that left, in their order.
        """
        x = self._embedding.index_select(0, token_ids)
        cos, sin = self._rotary.at(positions, length)
        gone = [tensor[:0] for tensor in (x, cos, sin)]
        slots = token_ids[:0]
        delta: Tensor | None = None
        for index, layer in enumerate(self._layers):
            if (stage := stages.get(index)) is not None:
                x, delta = x if delta is None else x + delta, None
                left = (tensor.index_select(0, stage.leave) for tensor in (x, cos, sin))
                gone = [torch.cat(pair) for pair in zip(gone, left, strict=True)]
                slots = torch.cat((slots, stage.slots))
                x, cos, sin = (tensor.index_select(0, stage.stay) for tensor in (x, cos, sin))
                attend = stage.attend
            if attend is not None:
                x, delta = layer(index, x, delta, cos, sin, attend)
            skipped = self._skipped[index]
            if skipped is not None and len(slots):
                store.write(index, slots, *skipped(*gone))
        x = x if delta is None else x + delta
        x = torch.cat((x, gone[0])).index_select(0, rows)
        normed = self._operators.rms_norm(x, self._final_norm, self.config.norm_eps)
        return self._head(normed).float()

    def _noticing(
        self,
        config: ModelConfig,
        weights: Weights,
        make_linear: MakeLinear,
        products: Mapping[str, LinearMap],
    ) -> Iterator[LayerWeights]:
        """Yield the layers; take the part of each that makes keys and values once it is made."""
        operators = operators_for(weights.embedding.device)
        for index, layer in enumerate(weights.layers):
            _require_heads(config, layer)
            yield layer
            skipped = None
            if config.stores(index):
                product = _key_value_product(config, layer, index, make_linear, products)
                skipped = _SkippedLayer(config, layer, product, operators)
            self._skipped.append(skipped)


def _require_heads(config: ModelConfig, layer: LayerWeights) -> None:
    if not isinstance(layer.attention, AttentionWeights):
        raise EngineError(
            f"early exit: {config.name} has latent attention; it needs key and value heads"
        )


def _key_value_product(
    config: ModelConfig,
    layer: LayerWeights,
    index: int,
    make_linear: MakeLinear,
    products: Mapping[str, LinearMap],
) -> LinearMap:
    """Return the product for keys and values: a part of the layer's own where that is possible."""
    assert isinstance(layer.attention, AttentionWeights)
    queries = config.heads * config.head_dim
    whole = products[f"layers.{index}.qkv"]
    part = whole.outputs_from(queries) if isinstance(whole, NativeLinear) else None
    return part or make_linear(f"layers.{index}.kv", layer.attention.qkv[queries:])


class _SkippedLayer:
    """Keys and values of rows that skip a layer."""

    def __init__(
        self,
        config: ModelConfig,
        weights: LayerWeights,
        product: LinearMap,
        operators: Operators,
    ) -> None:
        attention = weights.attention
        assert isinstance(attention, AttentionWeights)
        queries = config.heads * config.head_dim
        self._eps, self._head_dim = config.norm_eps, config.head_dim
        self._operators = operators
        self._norm = weights.attention_norm
        self._kv = product
        self._bias = None if attention.qkv_bias is None else attention.qkv_bias[queries:]
        self._key_norm = attention.key_norm

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Map [rows, hidden size] to keys and values [rows, kv heads, head dim]."""
        flat = self._kv(self._operators.rms_norm(x, self._norm, self._eps))
        if self._bias is not None:
            flat = flat + self._bias
        keys, values = flat.view(x.shape[0], -1, self._head_dim).chunk(2, 1)
        if self._key_norm is not None:
            keys = self._operators.rms_norm(keys, self._key_norm, self._eps)
        return self._operators.rotate(keys, cos, sin), values
