"""One description of a model: neither the simulator nor the engine knows one that the other does
not, and what both read of it is the same.
"""

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

from servetwin.engine.checkpoint.architectures import read_model_config
from servetwin.engine.models.tensor_layout import all_parts
from servetwin.sim.catalogue.hf_config import model_from_hf_config
from servetwin.sim.catalogue.layers import Attention, Experts
from servetwin.workloads.errors import EngineError
from servetwin.workloads.models.description import FAMILIES, NOT_COMPUTED

COMPUTED = [name for name, family in FAMILIES.items() if family.engine is not None]
LATENT = {"kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6}
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "layer_norm_eps": 1e-6,
    "layer_norm_epsilon": 1e-6,
    "sliding_window": 64,
    "use_sliding_window": True,
    "max_window_layers": 2,
    "head_dim": 16,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
STATES = {"mamba_n_heads": 8, "mamba_d_state": 24, "mamba_n_groups": 2, "mamba_d_conv": 3}
OWN: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 8, "head_dim": 16, "state_size": 24, "n_groups": 2, "conv_kernel": 4},
    "bamba": {**STATES, "attn_layer_indices": [1, 4]},
    "granitemoehybrid": {
        **STATES,
        "layer_types": 3 * ["mamba", "attention"],
        "shared_intermediate_size": 96,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "mamba_expand": 3,
    },
    "deepseek_v2": {**LATENT, **EXPERTS, "n_routed_experts": 8, "first_k_dense_replace": 1},
    "deepseek_v3": {**LATENT, **EXPERTS, "n_routed_experts": 8, "n_shared_experts": 1},
    "kimi_k2": {**LATENT, **EXPERTS, "n_routed_experts": 8, "q_lora_rank": 12},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {**EXPERTS, "num_experts": 4, "decoder_sparse_step": 2},
    "qwen2_moe": {**EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 80},
    "falcon": {"new_decoder_architecture": True},
    "llama4": {
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 80,
        "interleave_moe_layer_step": 2,
        "attention_chunk_size": None,  # the simulator has windows, the engine ends before one does
    },
    "nemotron_h": {
        **EXPERTS,
        "hybrid_override_pattern": "M-*EM*",
        "n_routed_experts": 4,
        "moe_shared_expert_intermediate_size": 80,
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "ssm_state_size": 24,
        "n_groups": 2,
        "conv_kernel": 4,
    },
}


def config_of(family: str) -> dict[str, Any]:
    config = SIZES | OWN.get(family, {}) | {"model_type": family}
    windows = (FAMILIES[family].engine or {}).get("windows")
    return config if windows else config | {"sliding_window": None, "use_sliding_window": False}


@pytest.mark.parametrize("family", COMPUTED)
def test_the_shape_of_the_simulator_is_that_of_the_model_of_the_engine(
    family: str, tmp_path: Path
) -> None:
    config = config_of(family)
    (tmp_path / "config.json").write_text(json.dumps(config))
    model, shape = read_model_config(tmp_path), model_from_hf_config(config, family)
    numbers = ("A_log", "D")
    matrices = [p for p in all_parts(model) if len(p.shape) > 1 or p.name.endswith(numbers)]
    counted = sum(prod(part.shape) for part in matrices if "shared_expert_gate" not in part.name)
    assert shape.params() == counted
    assert shape.kv_elements_per_token() == model.kv_bytes_per_token(1)
    assert shape.max_model_len == model.max_model_len
    assert shape.tied_embeddings == model.tie_embeddings
    windows = [
        (group.mixer.window_tokens, isinstance(group.ffn, Experts))
        for group in shape.layers
        for _ in range(group.count)
        if isinstance(group.mixer, Attention)
    ]
    attends = [layer for layer in range(model.layers) if not model.keeps_state(layer)]
    layers = attends if model.latent is None else []
    own = [(model.window(layer), model.has_experts(layer)) for layer in layers]
    assert sorted(windows, key=str) == sorted(own, key=str)


def test_a_window_and_experts_are_among_what_is_compared() -> None:
    assert len(COMPUTED) >= 27
    windows = {(FAMILIES[name].engine or {}).get("windows") for name in COMPUTED}
    assert {"every", "chosen"} <= windows
    assert {"mixtral", "gpt_oss", "deepseek_v3"} <= set(COMPUTED)


def test_a_family_is_computed_or_refused_with_what_the_engine_lacks(tmp_path: Path) -> None:
    reasons = {name: why for why, names in NOT_COMPUTED.items() for name in names}
    assert reasons.keys() | set(COMPUTED) == FAMILIES.keys()
    assert not reasons.keys() & set(COMPUTED)
    for family, why in reasons.items():
        (tmp_path / "config.json").write_text(json.dumps(SIZES | {"model_type": family}))
        with pytest.raises(EngineError) as refused:
            read_model_config(tmp_path)
        place = f"{tmp_path}/config.json: model_type {family} is not supported: "
        assert str(refused.value).startswith(f"{place}the engine lacks {why}; it has llama, ")
