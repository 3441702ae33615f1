"""Attention of a layer: with key heads for one, some or all of its query heads, or with latents.

Multi-head latent attention is that of DeepSeek-V2 (arXiv 2405.04434, section 2.1).
"""

import math

import torch
from torch import Tensor

from servetwin.engine.attention.step_attention import Attend
from servetwin.engine.models.linear import LinearMap, MakeLinear, biased
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.operators import PLAIN, Operators
from servetwin.engine.models.weights import LayerWeights
from servetwin.engine.native.linear import NativeLinear


class LatentAttention:
    """Attention over one latent and one rotated key per token, which are all that is stored.

    The products that make keys and values of the latent are absorbed: queries are brought into
    the latent space and sums of latents out of it, so that keys and values of heads never exist.
    What is stored serves as key and as value; the rotated part of a value is thrown away.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: LayerWeights,
        make_linear: MakeLinear,
        operators: Operators = PLAIN,
    ) -> None:
        self._operators = operators
        latent = config.latent
        assert latent is not None
        self._eps = latent.norm_eps
        self._head_dim, self._rank = config.head_dim, latent.rank
        self._plain_rotated = (config.head_dim - latent.rope_dim, latent.rope_dim)
        self._stored = (latent.rank, latent.rope_dim)
        self._query_norm = weights.get("query_norm")
        # None: queries come from the hidden state, not from a latent
        if self._query_norm is not None:
            self._query_down = make_linear("query_down", weights["query_down"])
        self._query = make_linear("query", weights["query"])
        self._latent = make_linear("latent", weights["latent"])
        self._latent_norm = weights["latent_norm"]
        self._out = make_linear("attention_out", weights["attention_out"])
        # Into the latent space [heads, plain width, rank], and out of it [heads, rank, width].
        per_head = weights["latent_up"].view(config.heads, -1, latent.rank)
        keys, values = per_head.split_with_sizes((self._plain_rotated[0], latent.value_dim), 1)
        self._to_latent = keys.contiguous()
        self._from_latent = values.transpose(1, 2).contiguous()
        # Attention divides scores by the root of the stored width, and a head has its own.
        scaling = config.rope_scaling.score_factor if config.rope_scaling else 1.0
        self._query_factor = scaling * math.sqrt(config.key_dim / config.head_dim)

    @property
    def absorbed_bytes(self) -> int:
        """Size of the weights that no product of ``make_linear`` has."""
        return self._to_latent.nbytes + self._from_latent.nbytes

    def __call__(self, layer: int, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Map [rows, hidden size] to the same shape; the latent is stored on the way."""
        latent, shared = self._latent(x).unsqueeze(1).split_with_sizes(self._stored, 2)
        latent = self._operators.rms_norm(latent, self._latent_norm, self._eps)
        keys = torch.cat((latent, self._operators.rotate(shared, cos, sin)), 2)
        mixed = attend(layer, self._queries(x, cos, sin), keys, keys)
        mixed = mixed.view(x.shape[0], -1, keys.shape[2])[:, :, : self._rank]
        values = torch.bmm(mixed.transpose(0, 1), self._from_latent)
        return self._out(values.transpose(0, 1).flatten(1))

    def _queries(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the queries in the space of what is stored: [rows, heads, rank + rope dim]."""
        if self._query_norm is not None:
            x = self._operators.rms_norm(self._query_down(x), self._query_norm, self._eps)
        heads = self._query(x).view(x.shape[0], -1, self._head_dim)
        plain, unrotated = heads.split_with_sizes(self._plain_rotated, 2)
        in_latent = torch.bmm(plain.transpose(0, 1), self._to_latent).transpose(0, 1)
        rotated = self._operators.rotate(unrotated, cos, sin)
        return torch.cat((in_latent, rotated), 2) * self._query_factor


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
        index: int = 0,
    ) -> None:
        self._operators = operators
        self._eps, self._head_dim = config.norm_eps, config.head_dim
        self._stores = stores
        scale, root = config.score_scale, math.sqrt(config.head_dim)
        self._query_factor = 1.0 if scale is None else scale * root
        # attention divides scores by the root of the width of a head
        self._heads = (config.heads, config.kv_heads)
        self._qk_v = (config.heads + config.kv_heads, config.kv_heads)
        self._qkv = make_linear("qkv" if stores else "query", weights["qkv"])
        out = make_linear("attention_out", weights["attention_out"])
        self._out = biased(out, weights.get("attention_out_bias"))
        self._bias = weights.get("qkv_bias")
        norms = (weights.get("query_norm"), weights.get("key_norm"))
        each = [
            norm.view(-1, config.head_dim).expand(heads, -1)
            for norm, heads in zip(norms, self._heads, strict=True)
            if norm is not None
        ]
        self._head_norms = torch.cat(each) if each else None  # [heads + kv heads, head dim]
        if config.bare_qk_norm and (not config.layer_thetas or config.layer_thetas[index]):
            self._head_norms = weights["qkv"].new_ones(config.head_dim)
        self._whole_norms = config.whole_qk_norm
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
            unrotated = self._norm_heads(unrotated, self._head_norms)
        queries = self._operators.rotate(unrotated, cos, sin)
        if self._stores:
            queries, keys = queries.split_with_sizes(self._heads, 1)
        if self._query_factor != 1.0:
            queries = queries * self._query_factor
        return self._out(attend(layer, queries, keys, values))

    def _norm_heads(self, heads: Tensor, norms: Tensor) -> Tensor:
        """Norm each head of [rows, heads + kv heads, head dim], or all queries and all keys."""
        if not self._whole_norms:
            return self._operators.rms_norm(heads, norms, self._eps)
        parts = zip(
            *(each.split_with_sizes(self._heads, -2) for each in (heads, norms)), strict=True
        )
        normed = [
            self._operators.rms_norm(part.flatten(1), norm.flatten(), self._eps).view_as(part)
            for part, norm in parts
        ]
        return torch.cat(normed, 1)

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
