"""Attention of a layer with key heads for one, some or all of its query heads."""

from torch import Tensor

from servetwin.engine.attention.step_attention import Attend
from servetwin.engine.models.linear import MakeLinear
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.operators import PLAIN, Operators
from servetwin.engine.models.weights import AttentionWeights


class SharedAttention:
    """Queries of its own; the keys and values are those that the step stored last."""

    def __init__(
        self,
        config: ModelConfig,
        weights: AttentionWeights,
        make_linear: MakeLinear,
        operators: Operators = PLAIN,
    ) -> None:
        self._operators = operators
        self._eps = config.norm_eps
        self._head_dim = config.head_dim
        self._query = make_linear("query", weights.qkv)
        self._out = make_linear("attention_out", weights.out)
        self._query_bias, self._out_bias = weights.qkv_bias, weights.out_bias
        self._query_norm = weights.query_norm

    def __call__(self, layer: int, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Map [rows, hidden size] to the same shape."""
        flat = self._query(x)
        if self._query_bias is not None:
            flat = flat + self._query_bias
        queries = flat.view(x.shape[0], -1, self._head_dim)
        if self._query_norm is not None:
            queries = self._operators.rms_norm(queries, self._query_norm, self._eps)
        rotated = self._operators.rotate(queries, cos, sin)
        out = self._out(attend(layer, rotated, None, None))
        return out if self._out_bias is None else out + self._out_bias


class SelfAttention:
    """MHA, GQA (Ainslie 2023) or MQA (Shazeer 2019) with one fused query-key-value product."""

    def __init__(
        self,
        config: ModelConfig,
        weights: AttentionWeights,
        make_linear: MakeLinear,
        operators: Operators = PLAIN,
    ) -> None:
        self._operators = operators
        self._eps = config.norm_eps
        self._head_dim = config.head_dim
        self._heads = (config.heads, config.kv_heads)
        self._qk_v = (config.heads + config.kv_heads, config.kv_heads)
        self._qkv = make_linear("qkv", weights.qkv)
        self._out = make_linear("attention_out", weights.out)
        self._qkv_bias, self._out_bias = weights.qkv_bias, weights.out_bias
        self._qk_norm = weights.head_norms(*self._heads)

    def __call__(self, layer: int, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Map [rows, hidden size] to the same shape; keys and values are stored on the way."""
        flat = self._qkv(x)
        if self._qkv_bias is not None:
            flat = flat + self._qkv_bias
        qkv = flat.view(x.shape[0], -1, self._head_dim)
        unrotated, values = qkv.split_with_sizes(self._qk_v, 1)
        if self._qk_norm is not None:
            unrotated = self._operators.rms_norm(unrotated, self._qk_norm, self._eps)
        rotated = self._operators.rotate(unrotated, cos, sin)
        queries, keys = rotated.split_with_sizes(self._heads, 1)
        out = self._out(attend(layer, queries, keys, values))
        return out if self._out_bias is None else out + self._out_bias
