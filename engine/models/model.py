"""The decoder: flat rows of a whole batch in, logits of the rows that sample out."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention.step_attention import Attend
from engine.models.linear import LinearMap, MakeLinear
from engine.models.model_config import ModelConfig
from engine.models.weights import LayerWeights, Weights


class Decoder:
    """A Llama-style decoder with fused query-key-value and gate-up products."""

    def __init__(self, config: ModelConfig, weights: Weights, make_linear: MakeLinear) -> None:
        self.config = config
        self._embedding = weights.embedding
        self._layers = [
            _Layer(config, layer, partial(_within, make_linear, f"layers.{index}"))
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
        for index, layer in enumerate(self._layers):
            x = layer(index, x, cos, sin, attend)
        if not rows.shape[0]:
            return x.new_empty((0, self.config.vocab_size), dtype=torch.float32)
        x = rms_norm(x.index_select(0, rows), self._final_norm, self.config.norm_eps)
        return self._head(x).float()


def _within(make_linear: MakeLinear, place: str, name: str, weight: Tensor) -> LinearMap:
    return make_linear(f"{place}.{name}", weight)


class _Layer:
    def __init__(self, config: ModelConfig, weights: LayerWeights, make_linear: MakeLinear) -> None:
        self._eps = config.norm_eps
        self._head_dim = config.head_dim
        self._heads = (config.heads, config.kv_heads)
        self._qk_v = (config.heads + config.kv_heads, config.kv_heads)
        self._attention_norm = weights.attention_norm
        self._ffn_norm = weights.ffn_norm
        self._qkv = make_linear("qkv", weights.qkv)
        self._attention_out = make_linear("attention_out", weights.attention_out)
        self._gate_up = make_linear("gate_up", weights.gate_up)
        self._down = make_linear("down", weights.down)

    def __call__(self, index: int, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        normed = rms_norm(x, self._attention_norm, self._eps)
        qkv = self._qkv(normed).view(x.shape[0], -1, self._head_dim)
        unrotated, values = qkv.split_with_sizes(self._qk_v, 1)
        queries, keys = rotate(unrotated, cos, sin).split_with_sizes(self._heads, 1)
        x = x + self._attention_out(attend(index, queries, keys, values))
        normed = rms_norm(x, self._ffn_norm, self._eps)
        gate, up = self._gate_up(normed).chunk(2, 1)
        return x + self._down(F.silu(gate).mul_(up))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Divide each row by its root mean square, in float32 (arXiv 1910.07467); multiply by
    ``weight``.
    """
    if x.is_cuda:  # one kernel there; on the CPU torch takes longer than these five calls
        return F.rms_norm(x, weight.shape, weight, eps)
    wide = x.float()
    scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight


class RotaryTable:
    """Cosines and sines of rotary positions (RoFormer, arXiv 2104.09864), grown when needed."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        exponents = torch.arange(0, config.head_dim, 2, device=device).float() / config.head_dim
        self._frequencies = 1.0 / config.rope_theta**exponents
        self._dtype = dtype
        self._cos = self._sin = torch.empty(0, device=device)

    def at(self, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Return the factors [rows, 1, head dim] for ``rotate``; all ``positions`` are below
        ``length``.
        """
        if length > len(self._cos):
            self._grow(1 << (length - 1).bit_length())
        cos, sin = self._cos.index_select(0, positions), self._sin.index_select(0, positions)
        return cos.unsqueeze(1), sin.unsqueeze(1)

    def _grow(self, length: int) -> None:
        positions = torch.arange(length, device=self._frequencies.device)
        angles = torch.outer(positions.float(), self._frequencies)
        cos, sin = angles.cos(), angles.sin()
        self._cos = torch.cat((cos, cos), dim=1).to(self._dtype)
        self._sin = torch.cat((-sin, sin), dim=1).to(self._dtype)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn [rows, heads, head dim] by position; element i pairs with i + head dim / 2."""
    return torch.addcmul(heads * cos, heads.roll(heads.shape[2] // 2, 2), sin)
