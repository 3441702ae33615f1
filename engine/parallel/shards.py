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
from servetwin.engine.models.weights import LayerWeights, Weights
from servetwin.workloads.errors import EngineError


def shard_config(config: ModelConfig, ways: int) -> ModelConfig:
    """Return the shape of one of ``ways`` slices.

    Raises ``EngineError`` where the model cannot be divided so.
    """
    undivided = {
        "latent attention": config.latent,
        "experts": config.experts,
        "layers with a state": config.state_space,
        "norms over all heads": config.whole_qk_norm,
        "networks without a gate": not config.gated,
        "rules of its own for scores": not config.plain_scores,
        "layers that share keys and values": config.kv_sharing > 1,
    }
    for what, has in undivided.items():
        if has:
            raise EngineError(
                f"tensor_parallel: model {config.name} has {what}, which ranks do not divide; "
                "use 1 rank"
            )
    divided = {"heads": config.heads, "ffn_size": config.ffn_size, "vocab_size": config.vocab_size}
    for name, size in divided.items():
        if size % ways:
            raise EngineError(
                f"tensor_parallel: {ways} ranks do not divide the {name} {size} of model "
                f"{config.name}; use a divisor of it"
            )
    if config.kv_heads % ways and ways % config.kv_heads:
        raise EngineError(
            f"tensor_parallel: {ways} ranks neither divide the {config.kv_heads} kv_heads of model "
            f"{config.name}, nor are they a multiple of them"
        )
    return replace(
        config,
        heads=config.heads // ways,
        kv_heads=max(1, config.kv_heads // ways),
        ffn_size=config.ffn_size // ways,
    )


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
        yield {name: _slice(name, tensor, config, rank, ways) for name, tensor in layer.items()}


def _slice(name: str, weight: Tensor, config: ModelConfig, rank: int, ways: int) -> Tensor:
    """Return the rank's part of a weight; norms, and biases after a sum, are whole."""
    match name:
        case "qkv" | "qkv_bias":
            return _heads(weight, config, rank, ways)
        case "gate_up" | "gate_up_bias":  # rows of the gate, then those of the up projection
            return torch.cat([half.chunk(ways)[rank] for half in weight.chunk(2)])
        case "attention_out" | "down":
            return weight.chunk(ways, 1)[rank].clone()
    return weight


def _heads(rows: Tensor, config: ModelConfig, rank: int, ways: int) -> Tensor:
    """Return the rows of the rank's query, key and value heads."""
    heads = rows.view(-1, config.head_dim, *rows.shape[1:])
    queries, *shared = heads.split_with_sizes([config.heads, config.kv_heads, config.kv_heads])
    copies = max(1, ways // config.kv_heads)
    keys_values = [part.chunk(ways // copies)[rank // copies] for part in shared]
    return torch.cat([queries.chunk(ways)[rank], *keys_values]).flatten(0, 1)
