"""Weights drawn at random from a seed: the engine needs no checkpoint."""

import torch
from torch import Tensor

from servetwin.engine.models.expert_config import ExpertConfig
from servetwin.engine.models.latent_config import LatentConfig
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.weights import (
    AttentionWeights,
    ExpertWeights,
    FeedForwardWeights,
    LatentWeights,
    LayerWeights,
    Weights,
)


def random_weights(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, *, seed: int, std: float
) -> Weights:
    """Draw normal weights of deviation ``std`` (norms around 1), equal for equal seed and device
    type.

    They are drawn on ``device``: a model of billions of weights starts in seconds on a GPU.
    """
    draw = _Draw(seed, std, dtype, device)
    embedding = draw(config.vocab_size, config.hidden_size)
    layers = [_layer(config, index, draw) for index in config.distinct_layers]
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


def _layer(config: ModelConfig, index: int, draw: _Draw) -> LayerWeights:
    experts = config.experts if config.has_experts(index) else None
    return LayerWeights(
        attention_norm=draw.norm(config.hidden_size),
        attention=_latent(config, config.latent, draw)
        if config.latent
        else _attention(config, index, draw),
        ffn_norm=draw.norm(config.hidden_size),
        ffn=_experts(config, experts, draw)
        if experts
        else _network(config, config.ffn_size, draw, bias=config.ffn_bias),
    )


def _attention(config: ModelConfig, index: int, draw: _Draw) -> AttentionWeights:
    hidden, head_dim, queries = config.hidden_size, config.head_dim, config.heads * config.head_dim
    stores = config.stores(index)
    rows = queries + (2 * config.kv_heads * head_dim if stores else 0)
    return AttentionWeights(
        qkv=draw(rows, hidden),
        out=draw(hidden, queries),
        qkv_bias=draw(rows) if config.qkv_bias else None,
        out_bias=draw(hidden) if config.attention_out_bias else None,
        query_norm=draw.norm(head_dim) if config.qk_norm else None,
        key_norm=draw.norm(head_dim) if config.qk_norm and stores else None,
    )


def _latent(config: ModelConfig, latent: LatentConfig, draw: _Draw) -> LatentWeights:
    hidden, heads = config.hidden_size, config.heads
    source = latent.query_rank or hidden
    per_head = config.head_dim - latent.rope_dim + latent.value_dim
    return LatentWeights(
        query=draw(heads * config.head_dim, source),
        latent=draw(latent.rank + latent.rope_dim, hidden),
        latent_norm=draw.norm(latent.rank),
        latent_up=draw(heads * per_head, latent.rank),
        out=draw(hidden, heads * latent.value_dim),
        query_down=draw(source, hidden) if latent.query_rank else None,
        query_norm=draw.norm(source) if latent.query_rank else None,
    )


def _network(
    config: ModelConfig, width: int, draw: _Draw, *, bias: bool = False
) -> FeedForwardWeights:
    hidden = config.hidden_size
    return FeedForwardWeights(
        gate_up=draw(2 * width, hidden),
        down=draw(hidden, width),
        gate_up_bias=draw(2 * width) if bias else None,
        down_bias=draw(hidden) if bias else None,
    )


def _experts(config: ModelConfig, experts: ExpertConfig, draw: _Draw) -> ExpertWeights:
    return ExpertWeights(
        router=draw(experts.experts, config.hidden_size),
        experts=[_network(config, experts.ffn_size, draw) for _ in range(experts.experts)],
        choice_bias=draw(experts.experts).float() if experts.choice_bias else None,
        shared=_network(config, experts.shared_size, draw) if experts.shared_size else None,
    )
