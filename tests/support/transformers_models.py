"""An independent implementation (transformers) of the engine's models, with the same weights."""

import warnings
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from engine.models.model_config import ModelConfig
from engine.models.weights import AttentionWeights, FeedForwardWeights, LayerWeights, Weights


def transformers_model(config: ModelConfig, weights: Weights) -> torch.nn.Module:
    """The model in float32 on the CPU; its class is the one that has what ``config`` has."""
    with warnings.catch_warnings():  # imported where it is asked: the import takes seconds
        warnings.simplefilter("ignore")
        import transformers
    family = _family(config)
    options = _options(config)
    hf_config = getattr(transformers, f"{family}Config")(**options)
    model: torch.nn.Module = getattr(transformers, f"{family}ForCausalLM")(hf_config)
    model.eval()
    state = state_dict(config, weights)
    model.load_state_dict({name: tensor.float().cpu() for name, tensor in state.items()})
    return model


def state_dict(config: ModelConfig, weights: Weights) -> dict[str, Tensor]:
    """The weights under the names of a checkpoint."""
    state = {
        "model.embed_tokens.weight": weights.embedding,
        "model.norm.weight": weights.final_norm,
        "lm_head.weight": weights.head,
    }
    for index, layer in enumerate(weights.layers):
        parts = _layer(config, layer)
        state |= {f"model.layers.{index}.{name}": part for name, part in parts.items()}
    return state


def _family(config: ModelConfig) -> str:
    if config.qk_norm:
        return "Qwen3"
    if config.qkv_bias and not config.attention_out_bias:
        return "Qwen2"
    return "Mistral" if config.windows else "Llama"


def _options(config: ModelConfig) -> dict[str, Any]:
    options: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.ffn_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "rope_parameters": _rope(config),
        "max_position_embeddings": config.max_model_len,
        "tie_word_embeddings": config.tie_embeddings,
        "attention_bias": config.attention_out_bias,
        "mlp_bias": config.ffn_bias,
        "attn_implementation": "eager",
    }
    if config.windows:
        (window,) = {window for window in config.windows if window}
        options |= {"sliding_window": window, "use_sliding_window": True}
        if _family(config) != "Mistral":
            sliding = [
                "sliding_attention" if window else "full_attention" for window in config.windows
            ]
            options["layer_types"] = sliding
    return options


def _rope(config: ModelConfig) -> dict[str, Any]:
    scaling = config.rope_scaling
    if scaling is None:
        return {"rope_type": "default", "rope_theta": config.rope_theta}
    values = asdict(scaling)
    return {
        "rope_type": values.pop("kind"),
        "rope_theta": config.rope_theta,
        "original_max_position_embeddings": values.pop("original_max_len"),
        "attention_factor": values.pop("rotary_factor"),
        **values,
    }


def _layer(config: ModelConfig, layer: LayerWeights) -> dict[str, Tensor]:
    return {
        "input_layernorm.weight": layer.attention_norm,
        "post_attention_layernorm.weight": layer.ffn_norm,
        **_attention(config, layer.attention),
        **_feed_forward(layer.ffn),
    }


def _attention(config: ModelConfig, weights: AttentionWeights) -> dict[str, Tensor]:
    query_rows, kv_rows = config.heads * config.head_dim, config.kv_heads * config.head_dim
    parts = {"o_proj.weight": weights.out}
    for kind, fused in (("weight", weights.qkv), ("bias", weights.qkv_bias)):
        if fused is not None:
            query, key, value = fused.split_with_sizes([query_rows, kv_rows, kv_rows])
            parts |= {f"q_proj.{kind}": query, f"k_proj.{kind}": key, f"v_proj.{kind}": value}
    optional = {
        "o_proj.bias": weights.out_bias,
        "q_norm.weight": weights.query_norm,
        "k_norm.weight": weights.key_norm,
    }
    parts |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    return {f"self_attn.{name}": part for name, part in parts.items()}


def _feed_forward(weights: FeedForwardWeights) -> dict[str, Tensor]:
    parts: dict[str, Tensor] = {}
    for kind, fused, down in (
        ("weight", weights.gate_up, weights.down),
        ("bias", weights.gate_up_bias, weights.down_bias),
    ):
        if fused is not None and down is not None:
            gate, up = fused.chunk(2)
            parts |= {f"gate_proj.{kind}": gate, f"up_proj.{kind}": up, f"down_proj.{kind}": down}
    return {f"mlp.{name}": part for name, part in parts.items()}
