"""The engine's weights under the names of transformers' models."""

import torch
from torch import Tensor

from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.weights import (
    AttentionWeights,
    ExpertWeights,
    FeedForwardWeights,
    LatentWeights,
    LayerWeights,
    Weights,
)


def state_dict(config: ModelConfig, weights: Weights) -> dict[str, Tensor]:
    """The state of the model whose parts ``config`` has."""
    state = {
        "model.embed_tokens.weight": weights.embedding,
        "model.norm.weight": weights.final_norm,
        "lm_head.weight": weights.head,
    }
    layers = list(weights.layers)
    for index in range(config.layers):
        own = index // config.weight_sharing
        parts = _layer(config, layers[own])
        if not config.stores(index):  # never used, but the model must have some
            first = _layer(config, layers[own - own % config.kv_sharing])
            parts = {**first, **parts}
        state |= {f"model.layers.{index}.{name}": part for name, part in parts.items()}
    return state


def _layer(config: ModelConfig, layer: LayerWeights) -> dict[str, Tensor]:
    attention = (
        _latent(config, layer.attention)
        if isinstance(layer.attention, LatentWeights)
        else _attention(config, layer.attention)
    )
    ffn = _experts(layer.ffn) if isinstance(layer.ffn, ExpertWeights) else _network(layer.ffn)
    return {
        "input_layernorm.weight": layer.attention_norm,
        "post_attention_layernorm.weight": layer.ffn_norm,
        **{f"self_attn.{name}": part for name, part in attention.items()},
        **{f"mlp.{name}": part for name, part in ffn.items()},
    }


def _attention(config: ModelConfig, weights: AttentionWeights) -> dict[str, Tensor]:
    query_rows, kv_rows = config.heads * config.head_dim, config.kv_heads * config.head_dim
    parts = {"o_proj.weight": weights.out}
    for kind, fused in (("weight", weights.qkv), ("bias", weights.qkv_bias)):
        if fused is not None:
            parts[f"q_proj.{kind}"] = fused[:query_rows]
            if len(fused) > query_rows:
                key, value = fused[query_rows:].split_with_sizes([kv_rows, kv_rows])
                parts |= {f"k_proj.{kind}": key, f"v_proj.{kind}": value}
    optional = {
        "o_proj.bias": weights.out_bias,
        "q_norm.weight": weights.query_norm,
        "k_norm.weight": weights.key_norm,
    }
    return parts | {name: tensor for name, tensor in optional.items() if tensor is not None}


def _latent(config: ModelConfig, weights: LatentWeights) -> dict[str, Tensor]:
    latent = config.latent
    assert latent is not None
    plain, rope = config.head_dim - latent.rope_dim, latent.rope_dim
    heads = weights.query.view(config.heads, config.head_dim, -1)
    query = torch.cat((heads[:, :plain], _interleaved(heads[:, plain:])), 1).flatten(0, 1)
    stored = torch.cat((weights.latent[:-rope], _interleaved(weights.latent[None, -rope:])[0]))
    parts = {
        "kv_a_proj_with_mqa.weight": stored,
        "kv_a_layernorm.weight": weights.latent_norm,
        "kv_b_proj.weight": weights.latent_up,
        "o_proj.weight": weights.out,
    }
    if weights.query_down is None or weights.query_norm is None:
        return parts | {"q_proj.weight": query}
    return parts | {
        "q_a_proj.weight": weights.query_down,
        "q_a_layernorm.weight": weights.query_norm,
        "q_b_proj.weight": query,
    }


def _interleaved(halves: Tensor) -> Tensor:
    """Rows [heads, rows, size] of which each pair stands together, not in two halves."""
    heads, rows, size = halves.shape
    return halves.reshape(heads, 2, rows // 2, size).transpose(1, 2).flatten(1, 2)


def _experts(weights: ExpertWeights) -> dict[str, Tensor]:
    parts = {
        "gate.weight": weights.router,
        "experts.gate_up_proj": torch.stack([expert.gate_up for expert in weights.experts]),
        "experts.down_proj": torch.stack([expert.down for expert in weights.experts]),
    }
    if weights.choice_bias is not None:
        parts["gate.e_score_correction_bias"] = weights.choice_bias
    if weights.shared is not None:
        shared = _network(weights.shared)
        parts |= {f"shared_experts.{name}": part for name, part in shared.items()}
    return parts


def _network(weights: FeedForwardWeights) -> dict[str, Tensor]:
    parts: dict[str, Tensor] = {}
    for kind, fused, down in (
        ("weight", weights.gate_up, weights.down),
        ("bias", weights.gate_up_bias, weights.down_bias),
    ):
        if fused is not None and down is not None:
            gate, up = fused.chunk(2)
            parts |= {f"gate_proj.{kind}": gate, f"up_proj.{kind}": up, f"down_proj.{kind}": down}
    return parts
