"""An independent implementation (transformers) of the engine's models, with the same weights."""

import warnings
from typing import Any

import torch
from torch import Tensor

from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.weights import Weights
from tests.support.transformers_weights import state_dict


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
    _share_keys(model, config)
    return model


def _share_keys(model: torch.nn.Module, config: ModelConfig) -> None:
    """Give layers the products of keys and values of the one before them that has its own."""
    for index in range(config.layers):
        for name in ("k_proj", "v_proj"):
            place = "model.layers.{}.self_attn." + name
            if not config.stores(index):
                source = model.get_submodule(place.format(index - index % config.kv_sharing))
                model.set_submodule(place.format(index), _Same(source))


class _Same(torch.nn.Module):
    """Says what ``source`` said last."""

    def __init__(self, source: torch.nn.Module) -> None:
        super().__init__()
        source.register_forward_hook(self._note)

    def _note(self, source: torch.nn.Module, inputs: Any, output: Tensor) -> None:
        self._output = output

    def forward(self, x: Tensor) -> Tensor:
        return self._output


def _family(config: ModelConfig) -> str:
    if config.latent:
        return "DeepseekV3" if config.experts and config.experts.choice_bias else "DeepseekV2"
    if config.experts:
        return "Qwen3Moe" if config.qk_norm else "Mixtral"
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
        **_latent_options(config),
        **_expert_options(config),
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
    rope: dict[str, Any] = {
        "rope_type": scaling.kind,
        "rope_theta": config.rope_theta,
        "factor": scaling.factor,
    }
    if scaling.kind != "linear":
        rope["original_max_position_embeddings"] = scaling.original_max_len
    names: dict[str, tuple[str, ...]] = {
        "llama3": ("low_freq_factor", "high_freq_factor"),
        "yarn": ("beta_fast", "beta_slow", "truncate"),
    }
    rope |= {name: getattr(scaling, name) for name in names.get(scaling.kind, ())}
    if scaling.score_factor != 1:  # DeepSeek writes magnitudes, of which both factors follow
        rope |= {"mscale": 1.0, "mscale_all_dim": 1.0}
    elif scaling.rotary_factor is not None:
        rope["attention_factor"] = scaling.rotary_factor
    return rope


def _latent_options(config: ModelConfig) -> dict[str, Any]:
    latent = config.latent
    if latent is None:
        return {}
    return {
        "num_key_value_heads": config.heads,
        "head_dim": latent.rope_dim,
        "kv_lora_rank": latent.rank,
        "q_lora_rank": latent.query_rank,
        "qk_rope_head_dim": latent.rope_dim,
        "qk_nope_head_dim": config.head_dim - latent.rope_dim,
        "v_head_dim": latent.value_dim,
        "first_k_dense_replace": len(config.experts.dense_layers)
        if config.experts
        else config.layers,
    }


def _expert_options(config: ModelConfig) -> dict[str, Any]:
    experts = config.experts
    if experts is None:
        return {}
    routing = {"num_experts_per_tok": experts.top_k, "norm_topk_prob": experts.normalise}
    family = _family(config)
    if family == "Mixtral":
        return routing | {
            "num_local_experts": experts.experts,
            "intermediate_size": experts.ffn_size,
        }
    routing |= {"moe_intermediate_size": experts.ffn_size}
    if family == "Qwen3Moe":
        dense = list(experts.dense_layers)
        return routing | {"num_experts": experts.experts, "mlp_only_layers": dense}
    return routing | {
        "n_routed_experts": experts.experts,
        "n_shared_experts": experts.shared_size // experts.ffn_size,
        "routed_scaling_factor": experts.scale,
        "topk_method": "group_limited_greedy" if experts.groups > 1 else "greedy",
        "n_group": experts.groups,
        "topk_group": experts.top_groups,
    }
