"""Architectures whose layers have experts, and those of DeepSeek with latent attention."""

from dataclasses import replace

from servetwin.engine.checkpoint.json_file import JsonObject, shown
from servetwin.engine.models.expert_config import ExpertConfig, Scoring
from servetwin.engine.models.latent_config import LatentConfig
from servetwin.engine.models.model_config import ModelConfig

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
