"""What a config.json says becomes the model, or the file and the key of what the engine has not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servetwin.engine.checkpoint.architectures import read_model_config
from servetwin.engine.models.model_config import ExpertConfig, LatentConfig, ModelConfig
from servetwin.engine.models.rope_scaling import RopeScaling
from servetwin.workloads.errors import EngineError
from servetwin.workloads.models.description import FAMILIES

MIXTRAL_NAMES = tuple(map(tuple, (FAMILIES["mixtral"].engine or {})["names"]))
BASIS: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}
"""As older transformers write it."""
PLAIN = ModelConfig(
    "mine", 64, 4, 4, 2, 16, 96, 300, norm_eps=1e-6, tie_embeddings=False, max_model_len=4096
)
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "original_max_position_embeddings": 1024,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}


EXPERTS = {
    "num_experts": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
}
LATENT = {"kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6}


def of(name: str, **more: Any) -> dict[str, Any]:
    return {"architectures": [f"{name}ForCausalLM"], "model_type": None, **more}


def read(tmp_path: Path, changes: dict[str, Any]) -> ModelConfig:
    folder = tmp_path / "mine"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(BASIS | changes))
    return read_model_config(folder)


QWEN_SLIDING = {"use_sliding_window": True, "sliding_window": 100, "max_window_layers": 3}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"architectures": None}, {}),
        ({"num_key_value_heads": None}, {"kv_heads": 4}),
        ({"head_dim": 32}, {"head_dim": 32}),
        ({"tie_word_embeddings": True}, {"tie_embeddings": True}),
        ({"rope_theta": 5e5}, {"rope_theta": 5e5}),
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, {"rope_theta": 5e5}),
        ({"attention_bias": True}, {"qkv_bias": True, "attention_out_bias": True}),
        ({"mlp_bias": True}, {"ffn_bias": True}),
        ({"pretraining_tp": 2, "attention_dropout": 0.1, "auto_map": {"a": "b"}}, {}),
        (of("Mistral", sliding_window=100), {"windows": (100,) * 4}),
        (of("Mistral", sliding_window=4096), {}),
        (of("Mistral", sliding_window=None), {}),
        (of("Qwen2", use_sliding_window=False, sliding_window=100), {"qkv_bias": True}),
        (of("Qwen2", **QWEN_SLIDING), {"qkv_bias": True, "windows": (None, None, None, 100)}),
        (
            of("Qwen3", **QWEN_SLIDING, layer_types=["sliding_attention", "full_attention"] * 2),
            {"qk_norm": True, "windows": (100, None, 100, None)},
        ),
        (
            of("Mixtral", num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
            {"experts": ExpertConfig(4, 2, 96), "names": MIXTRAL_NAMES},
        ),
        (
            of("Qwen3Moe", **EXPERTS, decoder_sparse_step=2, mlp_only_layers=[1]),
            {
                "qk_norm": True,
                "experts": ExpertConfig(8, 2, 48, dense_layers=(0, 1, 2), normalise=False),
            },
        ),
        (
            of("DeepseekV2", **LATENT, first_k_dense_replace=4, num_key_value_heads=4),
            {"kv_heads": 1, "head_dim": 12, "latent": LatentConfig(8, 4, 6)},
        ),
        (
            {"rope_scaling": LLAMA3},
            {"rope_scaling": RopeScaling("llama3", 8.0, 1024, 1.0, 4.0)},
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_scaling": RopeScaling("linear", 2.0)},
        ),
        (
            {"rope_scaling": YARN},
            {"rope_scaling": RopeScaling("yarn", 4.0, 2048), "max_model_len": 8192},
        ),
        (
            {"rope_scaling": YARN | {"attention_factor": 1.2, "beta_fast": 16}},
            {
                "rope_scaling": RopeScaling("yarn", 4.0, 2048, beta_fast=16.0, rotary_factor=1.2),
                "max_model_len": 8192,
            },
        ),
    ],
)
def test_a_config_becomes_the_model(
    tmp_path: Path, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert read(tmp_path, changes) == replace(PLAIN, **expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (of("Bert"), "architectures BertForCausalLM is not supported with model_type"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures LlamaForSeq"),
        ({"architectures": ["MistralForCausalLM"]}, "is not supported with model_type llama: use"),
        (
            {"architectures": None, "model_type": "bert"},
            "model_type bert is not supported: the engine l",
        ),
        (
            {"architectures": None, "model_type": "mamba"},
            "mamba is not supported: the engine lacks layers",
        ),
        ({"text_config": {"model_type": "llama"}}, 'text_config {"model_type": "llama"} is not'),
        ({"hidden_size": None}, "hidden_size (or n_embd, d_model, n_embed) is missing"),
        (
            {"vocab_size": "300"},
            "vocab_size must be a whole number from 1 to 2147483647",
        ),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a whole number from 1 to 10000"),
        ({"rms_norm_eps": None}, "rms_norm_eps is missing"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a number above 0"),
        ({"max_position_embeddings": None}, "max_position_embeddings (or n_positions, "),
        (of("Mistral", num_key_value_heads=None), "num_key_value_heads is missing"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must be a divisor of 4 (got 3)"),
        ({"hidden_size": 66}, "num_attention_heads must be a divisor of 66 (got 4)"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false"),
        ({"hidden_act": "gelu"}, 'hidden_act "gelu" is not supported by the engine; it supports '),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 4}},
            'quantization_config {"quant_method": "gptq", "bits": 4} is not supported',
        ),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
        ({"sliding_window": 100}, "sliding_window 100 is not supported"),
        ({"layer_types": ["chunked_attention"] * 4}, "layer_types 'chunked_attention' is not"),
        ({"layer_types": ["full_attention"]}, "layer_types must be a list of 4 of full_attention"),
        (
            of("Mistral", sliding_window=9, layer_types=["full_attention"] * 4),
            "layer_types 'full_attention' is not supported: use sliding_attention",
        ),
        (
            of("DeepseekV3", **LATENT, layer_types=["sliding_attention"] * 4),
            "layer_types 'sliding_attention' is not supported: use full_attention",
        ),
        (of("Qwen2", **QWEN_SLIDING | {"max_window_layers": "1"}), "max_window_layers must be a"),
        ({"architectures": [{}]}, "architectures must be a list of str"),
        ({"num_hidden_layers": 10**30}, "num_hidden_layers must be a whole number from 1 to 10000"),
        (
            {"rms_norm_eps": 10**400},
            "rms_norm_eps must be a number above 0",
        ),
        (
            {"vocab_size": 10**30},
            "vocab_size must be a whole number from 1 to 2147483647",
        ),
        (
            {"hidden_size": [3] * 100},
            "hidden_size must be a whole number from 1 to",
        ),
        (
            {"rope_scaling": YARN | {"factor": float("inf")}},
            "factor must be a number above 0",
        ),
        (
            of("Mixtral", num_local_experts=10**12),
            "num_local_experts must be a whole number",
        ),
        (
            of("Qwen3Moe", **EXPERTS | {"num_experts": 10**12}),
            "num_experts must be a whole number",
        ),
        (of("Qwen3Moe", **EXPERTS, mlp_only_layers=["1"]), "mlp_only_layers must be a list"),
        ({"rope_scaling": {"type": [1]}}, "rope_scaling: rope_type must be one of default, "),
        ({"layer_types": 5}, "layer_types must be a list of str"),
        ({"use_qk_norm": True}, "use_qk_norm true is not supported"),
        (of("Mistral", attention_bias=True), "attention_bias true is not supported"),
        (of("Qwen2", use_sliding_window=True), "sliding_window is missing"),
        (
            {"rope_scaling": {"type": "ntk", "factor": 2.0}},
            "rope_type must be one of default",
        ),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling: factor is missing"),
        ({"rope_scaling": [1]}, "rope_scaling must be an object"),
        (
            {"rope_scaling": LLAMA3 | {"high_freq_factor": 0.5}},
            "rope scaling: high_freq_factor must",
        ),
        (
            {"rope_scaling": {"type": "default", "mrope_section": [1, 2]}},
            "rope_scaling: mrope_section is not supported beside rope_type 'default'",
        ),
        (of("Mixtral", num_local_experts=4), "num_experts_per_tok (or experts_per_token, "),
        (
            of("Mixtral", num_local_experts=4, num_experts_per_tok=5),
            "experts: top_k 5 of 4 experts",
        ),
        (of("Mixtral", norm_topk_prob=False), "norm_topk_prob false is not supported"),
        (of("Qwen3Moe", **EXPERTS, mlp_only_layers=1), "mlp_only_layers must be a list"),
        (of("DeepseekV3", **LATENT, rope_interleave=False), "rope_interleave false is not"),
        (
            of("DeepseekV3", **LATENT, **EXPERTS, first_k_dense_replace="1"),
            "first_k_dense_replace must be",
        ),
        (of("DeepseekV3", **LATENT, **EXPERTS, scoring_func="softmax"), "scoring_func"),
        (of("DeepseekV2", **LATENT, **EXPERTS, norm_topk_prob=True), "norm_topk_prob true is not"),
        (of("DeepseekV2", **LATENT, **EXPERTS, topk_method="noaux_tc"), "topk_method"),
        (of("DeepseekV2", **LATENT, attention_bias=True), "attention_bias true is not supported"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0, "low_freq_factor": 1.0}},
            "rope_scaling: low_freq_factor is not supported beside rope_type 'linear'",
        ),
    ],
)
def test_what_the_engine_has_not_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineError) as refused:
        read(tmp_path, changes)
    assert str(refused.value).startswith(f"{tmp_path}/mine/config.json: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "config.json: is no JSON ("),
        ("[]", "config.json: must be a JSON object"),
        (None, "config.json: no such file"),
    ],
)
def test_a_file_that_is_no_config(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(EngineError) as refused:
        read_model_config(tmp_path)
    assert message in str(refused.value)
