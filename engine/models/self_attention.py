"""Attention of a layer with key heads for one, some or all of its query heads."""

import torch
from torch import Tensor

from servetwin.engine.attention.step_attention import Attend
from servetwin.engine.models.linear import LinearMap, MakeLinear
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.operators import PLAIN, Operators
from servetwin.engine.models.weights import LayerWeights
from servetwin.engine.native.linear import NativeLinear


class SelfAttention:
    """MHA, GQA (Ainslie 2023) or MQA (Shazeer 2019) with one fused query-key-value product.

    A layer that does not store has queries alone; its keys and values are those that the step
    stored last. One that is ``skippable`` makes keys and values of rows that attend to nothing.
    """

    absorbed_bytes = 0

    def __init__(
        self,
        config: ModelConfig,
        weights: LayerWeights,
        make_linear: MakeLinear,
        operators: Operators = PLAIN,
        *,
        stores: bool = True,
        skippable: bool = False,
    ) -> None:
        self._operators = operators
        self._eps, self._head_dim = config.norm_eps, config.head_dim
        self._stores = stores
        self._heads = (config.heads, config.kv_heads)
        self._qk_v = (config.heads + config.kv_heads, config.kv_heads)
        self._qkv = make_linear("qkv" if stores else "query", weights["qkv"])
        self._out = make_linear("attention_out", weights["attention_out"])
        self._bias, self._out_bias = weights.get("qkv_bias"), weights.get("attention_out_bias")
        norms = (weights.get("query_norm"), weights.get("key_norm"))
        each = [
            norm.expand(heads, -1)
            for norm, heads in zip(norms, self._heads, strict=True)
            if norm is not None
        ]
        self._head_norms = torch.cat(each) if each else None
        """[heads + kv heads, head dim]."""
        if stores and skippable:
            self._kv = self._key_value_product(weights["qkv"], make_linear)

    def __call__(self, layer: int, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Map [rows, hidden size] to the same shape; keys and values are stored on the way."""
        flat = self._qkv(x)
        if self._bias is not None:
            flat = flat + self._bias
        unrotated, values, keys = flat.view(x.shape[0], -1, self._head_dim), None, None
        if self._stores:
            unrotated, values = unrotated.split_with_sizes(self._qk_v, 1)
        if self._head_norms is not None:
            unrotated = self._operators.rms_norm(unrotated, self._head_norms, self._eps)
        queries = self._operators.rotate(unrotated, cos, sin)
        if self._stores:
            queries, keys = queries.split_with_sizes(self._heads, 1)
        out = self._out(attend(layer, queries, keys, values))
        return out if self._out_bias is None else out + self._out_bias

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Map [rows, hidden size] to the keys and values that a skippable layer stores."""
        queries = self._heads[0]
        flat = self._kv(x)
        if self._bias is not None:
            flat = flat + self._bias[queries * self._head_dim :]
        keys, values = flat.view(x.shape[0], -1, self._head_dim).chunk(2, 1)
        if self._head_norms is not None:
            keys = self._operators.rms_norm(keys, self._head_norms[queries:], self._eps)
        return self._operators.rotate(keys, cos, sin), values

    def _key_value_product(self, qkv: Tensor, make_linear: MakeLinear) -> LinearMap:
        """Return the part of the fused product behind the queries; without a copy if possible."""
        queries = self._heads[0] * self._head_dim
        fused = self._qkv
        part = fused.outputs_from(queries) if isinstance(fused, NativeLinear) else None
        return part or make_linear("kv", qkv[queries:])
