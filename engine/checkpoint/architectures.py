"""From a ``config.json`` to the model that the engine computes, by architecture."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from servetwin.engine.checkpoint.json_file import JsonObject, shortened, shown
from servetwin.engine.checkpoint.rope_parameters import rope_scaling, rope_theta
from servetwin.engine.models.expert_config import ExpertConfig, Scoring
from servetwin.engine.models.latent_config import LatentConfig
from servetwin.engine.models.model_config import ModelConfig
from servetwin.workloads.errors import EngineError

_MOST_EXPERTS = 4_096
"""The names of their tensors are listed before any is looked for."""


def mixtral_experts(config: JsonObject) -> ExpertConfig:
    """Return the experts of Mixtral: all layers have some, and their weights add up to 1."""
    return ExpertConfig(
        config.size("num_local_experts", most=_MOST_EXPERTS),
        config.size("num_experts_per_tok"),
        config.size("intermediate_size"),
    )


def qwen3_experts(config: JsonObject, model: ModelConfig) -> ExpertConfig:
    """Return the experts of Qwen3-MoE: of every ``decoder_sparse_step``-th layer."""
    key = "num_experts" if config.get("num_experts") is not None else "num_local_experts"
    step, dense = config.size("decoder_sparse_step", 1), config.get("mlp_only_layers", [])
    if not isinstance(dense, list) or any(type(layer) is not int for layer in dense):
        raise config.error("mlp_only_layers", f"must be a list of layers (got {shown(dense)})")
    layers, without = range(model.layers), frozenset(dense)
    return ExpertConfig(
        config.size(key, most=_MOST_EXPERTS),
        config.size("num_experts_per_tok"),
        config.size("moe_intermediate_size"),
        dense_layers=tuple(i for i in layers if i in without or (i + 1) % step),
        normalise=config.flag("norm_topk_prob"),
    )


_DEEPSEEK: dict[str, tuple[object, ...]] = {
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "moe_layer_freq": (1,),
    "rope_interleave": (True,),
    "ep_size": (1,),
}


def deepseek(config: JsonObject, model: ModelConfig, *, third: bool) -> ModelConfig:
    """Return a model with latent attention and, unless all layers are dense, experts.

    ``third`` is DeepSeek-V3, whose router scores by sigmoids and has a bias for the choice.
    """
    config.require_neutral(_DEEPSEEK)
    rope_dim = config.size("qk_rope_head_dim")
    query_rank = config.size("q_lora_rank") if config.get("q_lora_rank") is not None else None
    latent = LatentConfig(
        config.size("kv_lora_rank"), rope_dim, config.size("v_head_dim"), query_rank
    )
    width = config.size("qk_nope_head_dim") + rope_dim
    dense = config.get("first_k_dense_replace", 0)
    if type(dense) is not int or dense < 0:
        raise config.error(
            "first_k_dense_replace", f"must be a number of layers (got {shown(dense)})"
        )
    experts = _deepseek_experts(config, dense, third=third) if dense < model.layers else None
    return replace(model, kv_heads=1, head_dim=width, latent=latent, experts=experts)


def _deepseek_experts(config: JsonObject, dense: int, *, third: bool) -> ExpertConfig:
    scoring: Scoring = "sigmoid" if third else "softmax"
    config.require_neutral({"scoring_func": (scoring,)})
    if not third:
        config.require_neutral(
            {"norm_topk_prob": (False,), "topk_method": ("greedy", "group_limited_greedy")}
        )
    grouped = third or config.get("topk_method") == "group_limited_greedy"
    width, shared = config.size("moe_intermediate_size"), config.get("n_shared_experts")
    return ExpertConfig(
        config.size("n_routed_experts", most=_MOST_EXPERTS),
        config.size("num_experts_per_tok"),
        width,
        shared_size=width * config.size("n_shared_experts") if shared else 0,
        dense_layers=tuple(range(dense)),
        scoring=scoring,
        choice_bias=third,
        normalise=third and config.flag("norm_topk_prob", True),
        scale=config.number("routed_scaling_factor", 2.5 if third else 1.0),
        groups=config.size("n_group", 1) if grouped else 1,
        top_groups=config.size("topk_group", 1) if grouped else 1,
        group_scorers=2 if third else 1,
    )


CONFIG_FILE = "config.json"
_MOST_LAYERS = 10_000

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "hidden_act": ("silu", "swish"),
    "quantization_config": (),
    "compression_config": (),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "partial_rotary_factor": (1, 1.0),
    "attention_chunk_size": (),
    "no_rope_layers": ([],),
    "clip_qkv": (),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "query_pre_attn_scalar": (),
    "attention_multiplier": (1, 1.0),
    "embedding_multiplier": (1, 1.0),
    "residual_multiplier": (1, 1.0),
    "logits_scaling": (1, 1.0),
    "logit_scale": (1, 1.0),
    "use_mrope": (False,),
    "use_qk_norm": (False,),
    "qk_layernorm": (False,),
    "vision_config": (),
    "audio_config": (),
}
"""Keys that change what a model computes, and the values with which they do not."""


def read_model_config(folder: Path) -> ModelConfig:
    """Return the model of a folder's ``config.json``; it is called as the folder is.

    Raises ``EngineError`` with the file and the key for what the engine cannot compute.
    """
    config = JsonObject.read(folder / CONFIG_FILE)
    read = _reader(config)
    config.require_neutral(_NEUTRAL)
    try:
        return read(config, _basis(config, folder.resolve().name))
    except EngineError as error:
        raise EngineError(_with_place(str(error), config.place)) from None


def _with_place(reason: str, place: str) -> str:
    return reason if reason.startswith(place) else f"{place}: {reason}"


Reader = Callable[[JsonObject, ModelConfig], ModelConfig]
"""Adds to the basis what sets an architecture apart."""


def _reader(config: JsonObject) -> Reader:
    named = config.get("architectures")
    if isinstance(named, list) and len(named) == 1 and str(named[0]) in ARCHITECTURES:
        return ARCHITECTURES[str(named[0])]
    by_type = {name.removesuffix("ForCausalLM").lower(): name for name in ARCHITECTURES}
    model_type = str(config.get("model_type", "")).replace("_", "")
    if named is None and model_type in by_type:
        return ARCHITECTURES[by_type[model_type]]
    found = ", ".join(map(str, named)) if isinstance(named, list) else config.get("model_type")
    known = ", ".join(ARCHITECTURES)
    raise config.error(
        "architectures", f"{shortened(str(found))} is not supported: the engine has {known}"
    )


def _basis(config: JsonObject, name: str) -> ModelConfig:
    """Return what all architectures have in common."""
    heads, hidden_size = config.size("num_attention_heads"), config.size("hidden_size")
    scaling, longest = rope_scaling(config), config.size("max_position_embeddings")
    if scaling is not None and scaling.kind == "yarn":
        longest = max(longest, round(scaling.factor * scaling.original_max_len))
    return ModelConfig(
        name=name,
        hidden_size=hidden_size,
        layers=config.size("num_hidden_layers", most=_MOST_LAYERS),
        heads=heads,
        kv_heads=config.size("num_key_value_heads", heads),
        head_dim=_head_dim(config, hidden_size, heads),
        ffn_size=config.size("intermediate_size"),
        vocab_size=config.size("vocab_size"),
        rope_theta=rope_theta(config),
        rope_scaling=scaling,
        norm_eps=config.number("rms_norm_eps"),
        tie_embeddings=config.flag("tie_word_embeddings"),
        max_model_len=longest,
    )


def _head_dim(config: JsonObject, hidden_size: int, heads: int) -> int:
    if config.get("head_dim") is not None:
        return config.size("head_dim")
    if hidden_size % heads:
        raise config.error("head_dim", f"is missing, and {hidden_size} / {heads} is not whole")
    return hidden_size // heads


def _llama(config: JsonObject, model: ModelConfig) -> ModelConfig:
    config.require_neutral({"sliding_window": ()})
    _check_layer_types(config, model, allowed="full_attention")
    bias = config.flag("attention_bias")
    return replace(
        model,
        qkv_bias=bias,
        attention_out_bias=bias,
        ffn_bias=config.flag("mlp_bias"),
    )


def _mistral(config: JsonObject, model: ModelConfig) -> ModelConfig:
    config.require_neutral({"attention_bias": (False,), "mlp_bias": (False,)})
    config.size("num_key_value_heads")
    if config.get("sliding_window") is None:
        _check_layer_types(config, model, allowed="full_attention")
        return model
    _check_layer_types(config, model, allowed="sliding_attention")
    return _with_windows(model, [config.size("sliding_window")] * model.layers)


def _qwen2(config: JsonObject, model: ModelConfig) -> ModelConfig:
    config.require_neutral({"mlp_bias": (False,)})
    return replace(_qwen_windows(config, model), qkv_bias=True)


def _qwen3(config: JsonObject, model: ModelConfig) -> ModelConfig:
    config.require_neutral({"mlp_bias": (False,)})
    bias = config.flag("attention_bias")
    model = replace(model, qk_norm=True, qkv_bias=bias, attention_out_bias=bias)
    return _qwen_windows(config, model)


def _qwen_windows(config: JsonObject, model: ModelConfig) -> ModelConfig:
    """Return the model with the windows of ``layer_types``, or of the layers from
    ``max_window_layers`` on.
    """
    config.size("num_key_value_heads")
    if not config.flag("use_sliding_window"):
        _check_layer_types(config, model, allowed="full_attention")
        return model
    window = config.size("sliding_window")
    types = _check_layer_types(config, model, allowed="full_attention or sliding_attention")
    if not types:
        first = config.get("max_window_layers", 28)
        if type(first) is not int or first < 0:
            raise config.error(
                "max_window_layers", f"must be a number of layers (got {shown(first)})"
            )
        types = ["full_attention"] * model.layers
        types[first:] = ["sliding_attention"] * max(0, model.layers - first)
    return _with_windows(model, [window if kind[0] == "s" else None for kind in types])


def _with_windows(model: ModelConfig, windows: list[int | None]) -> ModelConfig:
    """Return the model with windows, but for those that no context fills."""
    narrow = [w if w is not None and w < model.max_model_len else None for w in windows]
    return replace(model, windows=tuple(narrow) if any(narrow) else ())


def _check_layer_types(config: JsonObject, model: ModelConfig, allowed: str) -> list[str]:
    """Return ``layer_types``, empty where it is absent. Raises ``EngineError`` for an unknown
    one.
    """
    types: Any = config.get("layer_types", [])
    if not isinstance(types, list) or len(types) not in (0, model.layers):
        raise config.error("layer_types", f"must be a list of {model.layers}")
    for kind in types:
        if kind not in allowed.split(" or "):
            raise config.error("layer_types", f"{shown(kind)} is not supported: use {allowed}")
    return list(types)


def _mixtral(config: JsonObject, model: ModelConfig) -> ModelConfig:
    config.require_neutral({"norm_topk_prob": (True,)})
    return replace(_mistral(config, model), experts=mixtral_experts(config))


def _qwen3_moe(config: JsonObject, model: ModelConfig) -> ModelConfig:
    return replace(_qwen3(config, model), experts=qwen3_experts(config, model))


def _deepseek_v2(config: JsonObject, model: ModelConfig) -> ModelConfig:
    _check_layer_types(config, model, allowed="full_attention")
    return deepseek(config, model, third=False)


def _deepseek_v3(config: JsonObject, model: ModelConfig) -> ModelConfig:
    _check_layer_types(config, model, allowed="full_attention")
    return deepseek(config, model, third=True)


ARCHITECTURES: dict[str, Reader] = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _mistral,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": _qwen3,
    "MixtralForCausalLM": _mixtral,
    "Qwen3MoeForCausalLM": _qwen3_moe,
    "DeepseekV2ForCausalLM": _deepseek_v2,
    "DeepseekV3ForCausalLM": _deepseek_v3,
}
