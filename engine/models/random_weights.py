"""Weights drawn at random from a seed: the engine needs no checkpoint."""

import torch
from torch import Tensor

from engine.models.model_config import ModelConfig
from engine.models.weights import AttentionWeights, FeedForwardWeights, LayerWeights, Weights


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
    final_norm = draw.norm(config.hidden_size)
    tied = config.tie_embeddings
    head = embedding if tied else draw(config.vocab_size, config.hidden_size)
    return Weights(embedding, layers, final_norm, head)


class _Draw:
    """Draws tensors in float32 and rounds them, so that every dtype sees the same numbers."""

    def __init__(self, seed: int, std: float, dtype: torch.dtype, device: torch.device) -> None:
        self._generator = torch.Generator(device).manual_seed(seed)
        self._std = std
        self._dtype = dtype

    def __call__(self, *shape: int, mean: float = 0.0) -> Tensor:
        """Draw a matrix, or a bias, around ``mean``."""
        tensor = torch.empty(shape, device=self._generator.device)
        return tensor.normal_(mean, self._std, generator=self._generator).to(self._dtype)

    def norm(self, size: int) -> Tensor:
        """Draw the weights of a norm, around 1."""
        return self(size, mean=1.0)


def _layer(config: ModelConfig, draw: _Draw) -> LayerWeights:
    return LayerWeights(
        attention_norm=draw.norm(config.hidden_size),
        attention=_attention(config, draw),
        ffn_norm=draw.norm(config.hidden_size),
        ffn=_feed_forward(config, draw),
    )


def _attention(config: ModelConfig, draw: _Draw) -> AttentionWeights:
    hidden, head_dim, queries = config.hidden_size, config.head_dim, config.heads * config.head_dim
    rows = queries + 2 * config.kv_heads * head_dim
    return AttentionWeights(
        qkv=draw(rows, hidden),
        out=draw(hidden, queries),
        qkv_bias=draw(rows) if config.qkv_bias else None,
        out_bias=draw(hidden) if config.attention_out_bias else None,
        query_norm=draw.norm(head_dim) if config.qk_norm else None,
        key_norm=draw.norm(head_dim) if config.qk_norm else None,
    )


def _feed_forward(config: ModelConfig, draw: _Draw) -> FeedForwardWeights:
    hidden, width = config.hidden_size, config.ffn_size
    return FeedForwardWeights(
        gate_up=draw(2 * width, hidden),
        down=draw(hidden, width),
        gate_up_bias=draw(2 * width) if config.ffn_bias else None,
        down_bias=draw(hidden) if config.ffn_bias else None,
    )
