"""Weights of a decoder, drawn at random from a seed: the engine needs no checkpoint."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; matrices are [output size, input size]."""

    attention_norm: Tensor
    qkv: Tensor
    """Rows of all query heads, then all key heads, then all value heads."""
    attention_out: Tensor
    ffn_norm: Tensor
    gate_up: Tensor
    """Rows of the gate, then rows of the up projection."""
    down: Tensor


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole decoder; ``head`` is ``embedding`` itself where they are tied."""

    embedding: Tensor
    layers: Iterable[LayerWeights]
    """A checkpoint reads each layer when it is its turn, so that no two copies are in memory."""
    final_norm: Tensor
    head: Tensor


LoadWeights = Callable[[torch.dtype, torch.device], Weights]
"""Makes the weights of a known model in a number format on a device."""


class _Draw:
    """Draws tensors in float32 and rounds them, so that every dtype sees the same numbers."""

    def __init__(self, seed: int, std: float, dtype: torch.dtype, device: torch.device) -> None:
        self._generator = torch.Generator(device).manual_seed(seed)
        self._std = std
        self._dtype = dtype

    def __call__(self, *shape: int) -> Tensor:
        """Draw a matrix around 0, or the vector of a norm around 1."""
        mean = 1.0 if len(shape) == 1 else 0.0
        tensor = torch.empty(shape, device=self._generator.device)
        return tensor.normal_(mean, self._std, generator=self._generator).to(self._dtype)


def random_weights(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, *, seed: int, std: float
) -> Weights:
    """Draw normal weights of deviation ``std`` (norms around 1), equal for equal seed and device
    type.

    They are drawn on ``device``: a model of billions of weights starts in seconds on a GPU.
    """
    draw = _Draw(seed, std, dtype, device)
    embedding = draw(config.vocab_size, config.hidden_size)
    layers = [_layer(config, draw) for _ in range(config.layers)]
    final_norm = draw(config.hidden_size)
    tied = config.tie_embeddings
    head = embedding if tied else draw(config.vocab_size, config.hidden_size)
    return Weights(embedding, layers, final_norm, head)


def _layer(config: ModelConfig, draw: _Draw) -> LayerWeights:
    hidden, attention = config.hidden_size, config.heads * config.head_dim
    return LayerWeights(
        attention_norm=draw(hidden),
        qkv=draw(attention + 2 * config.kv_heads * config.head_dim, hidden),
        attention_out=draw(hidden, attention),
        ffn_norm=draw(hidden),
        gate_up=draw(2 * config.ffn_size, hidden),
        down=draw(hidden, config.ffn_size),
    )
