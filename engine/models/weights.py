"""The weights of a decoder; matrices are [output size, input size]."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Attention with keys and values per head; the model says which biases and norms exist."""

    qkv: Tensor
    """Rows of all query heads, then all key heads, then all value heads (where the layer has some
    of its own); of each head that is rotated, the first halves of all pairs, then the second.
    """
    out: Tensor
    qkv_bias: Tensor | None = None
    """In the order of the rows of ``qkv``."""
    out_bias: Tensor | None = None
    query_norm: Tensor | None = None
    """[head dim], the same for all query heads."""
    key_norm: Tensor | None = None

    def head_norms(self, heads: int, kv_heads: int) -> Tensor | None:
        """Return both norms as one [heads + kv heads, head dim]."""
        if self.query_norm is None or self.key_norm is None:
            return None
        rows = (self.query_norm.expand(heads, -1), self.key_norm.expand(kv_heads, -1))
        return torch.cat(rows)


@dataclass(frozen=True, slots=True)
class LatentWeights:
    """Multi-head latent attention."""

    query: Tensor
    """Rows of each query head in turn, the rotated ones last, in halves as in ``qkv``."""
    latent: Tensor
    """Rows of the latent, then of the key that is rotated."""
    latent_norm: Tensor
    latent_up: Tensor
    """Of each head in turn, rows of its keys, then of its values."""
    out: Tensor
    query_down: Tensor | None = None
    query_norm: Tensor | None = None


@dataclass(frozen=True, slots=True)
class FeedForwardWeights:
    """A gated feed-forward network."""

    gate_up: Tensor
    """Rows of the gate, then rows of the up projection."""
    down: Tensor
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """A router [experts, hidden size] and its feed-forward networks."""

    router: Tensor
    experts: list[FeedForwardWeights]
    choice_bias: Tensor | None = None
    """In float32."""
    shared: FeedForwardWeights | None = None


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer."""

    attention_norm: Tensor
    attention: AttentionWeights | LatentWeights
    ffn_norm: Tensor
    ffn: FeedForwardWeights | ExpertWeights


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole decoder; ``head`` is ``embedding`` itself where they are tied."""

    embedding: Tensor
    layers: Iterable[LayerWeights]
    """Of ``distinct_layers``; a checkpoint reads each when it is its turn, so that no two copies
    are in memory.
    """
    final_norm: Tensor
    head: Tensor


LoadWeights = Callable[[torch.dtype, torch.device], Weights]
"""Makes the weights of a known model in a number format on a device."""
