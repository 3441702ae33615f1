"""The slice of a model that one rank of tensor parallelism computes (Megatron-LM, Shoeybi 2019).

Heads, the feed-forward width and the rows of the output head are divided; norms, the embedding and
the biases after a sum are whole on every rank. Where ranks are more than key heads, each has a copy
of one, as in vLLM.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.weights import (
    AttentionWeights,
    FeedForwardWeights,
    LayerWeights,
    Weights,
)
from servetwin.workloads.errors import EngineError


def shard_weights(weights: Weights, config: ModelConfig, rank: int, ways: int) -> Weights:
    """Return the slice of a rank; ``config`` is the shape of the whole model."""
    return Weights(
        weights.embedding,
        _layers(weights, config, rank, ways),
        weights.final_norm,
        weights.head.chunk(ways)[rank].clone(),
    )


def _layers(weights: Weights, config: ModelConfig, rank: int, ways: int) -> Iterator[LayerWeights]:
    for layer in weights.layers:
        if not isinstance(layer.attention, AttentionWeights):
            raise EngineError("tensor_parallel: latent attention is not divided; use 1 rank")
        if not isinstance(layer.ffn, FeedForwardWeights):
            raise EngineError("tensor_parallel: experts are not divided; use 1 rank")
        yield replace(
            layer,
            attention=_attention(layer.attention, config, rank, ways),
            ffn=_feed_forward(layer.ffn, rank, ways),
        )


def _attention(
    weights: AttentionWeights, config: ModelConfig, rank: int, ways: int
) -> AttentionWeights:
    def own_heads(rows: Tensor) -> Tensor:
        """Return the rows of the rank's query, key and value heads."""
        heads = rows.view(-1, config.head_dim, *rows.shape[1:])
        queries, keys, values = heads.split_with_sizes(
            [config.heads, config.kv_heads, config.kv_heads]
        )
        copies = max(1, ways // config.kv_heads)
        own = (
            queries.chunk(ways)[rank],
            *(shared.chunk(ways // copies)[rank // copies] for shared in (keys, values)),
        )
        return torch.cat(own).flatten(0, 1)

    bias = weights.qkv_bias
    return replace(
        weights,
        qkv=own_heads(weights.qkv),
        out=weights.out.chunk(ways, 1)[rank].clone(),
        qkv_bias=None if bias is None else own_heads(bias),
    )


def _feed_forward(weights: FeedForwardWeights, rank: int, ways: int) -> FeedForwardWeights:
    def own_width(rows: Tensor) -> Tensor:
        """Return the rank's rows of the gate, then those of the up projection."""
        return torch.cat([half.chunk(ways)[rank] for half in rows.chunk(2)])

    bias = weights.gate_up_bias
    return replace(
        weights,
        gate_up=own_width(weights.gate_up),
        down=weights.down.chunk(ways, 1)[rank].clone(),
        gate_up_bias=None if bias is None else own_width(bias),
    )
