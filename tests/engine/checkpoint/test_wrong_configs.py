"""Every key of a config.json with every kind of wrong value: a model, or one line that names it."""

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servetwin.engine.checkpoint.find_model import find_model
from servetwin.engine.models.tensor_layout import parameters
from servetwin.workloads.errors import EngineError
from tests.engine.checkpoint.test_architectures import (
    BASIS,
    EXPERTS,
    LATENT,
    LLAMA3,
    QWEN_SLIDING,
    YARN,
    of,
)

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {
        "head_dim": 16,
        "attention_bias": False,
        "mlp_bias": False,
        "rope_theta": 5e5,
        "tie_word_embeddings": False,
        "rope_scaling": LLAMA3,
        "layer_types": ["full_attention"] * 4,
        "eos_token_id": [1, 2],
    },
    "linear": {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
    "mistral": of("Mistral", sliding_window=100),
    "qwen2": of("Qwen2", **QWEN_SLIDING),
    "qwen3": of("Qwen3", attention_bias=True, rope_scaling=YARN | {"beta_fast": 16, "mscale": 1.0}),
    "mixtral": of("Mixtral", num_local_experts=4, num_experts_per_tok=2),
    "qwen3-moe": of("Qwen3Moe", **EXPERTS, decoder_sparse_step=2, mlp_only_layers=[1]),
    "deepseek-v2": of("DeepseekV2", **LATENT, **EXPERTS, first_k_dense_replace=1, q_lora_rank=8),
    "deepseek-v3": of(
        "DeepseekV3",
        **LATENT,
        **EXPERTS,
        n_group=4,
        topk_group=2,
        n_shared_experts=1,
        routed_scaling_factor=2.5,
        norm_topk_prob=True,
        scoring_func="sigmoid",
        rope_scaling=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    ),
    "granite": of("Granite", logits_scaling=2.0, residual_multiplier=0.5, attention_multiplier=0.2),
    "smollm3": of("SmolLM3", no_rope_layers=[1, 0, 1, 1], no_rope_layer_interval=4),
    "glm4": of("Glm4", partial_rotary_factor=0.5, attention_bias=True),
    "cohere2": of("Cohere2", logit_scale=0.1, layer_norm_eps=1e-5, sliding_window_pattern=2),
    "gemma3": of(
        "Gemma3",
        hidden_act=None,
        hidden_activation="gelu_pytorch_tanh",
        query_pre_attn_scalar=20,
        layer_types=["sliding_attention", "full_attention"] * 2,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    ),
    "gemma2": of(
        "Gemma2",
        hidden_act=None,
        hidden_activation="gelu_pytorch_tanh",
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        sliding_window=64,
    ),
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
    },
    "opt": of("OPT", ffn_dim=96, enable_bias=True, activation_function="relu"),
    "gpt-neox": of(
        "GPTNeoX",
        hidden_act="gelu",
        layer_norm_eps=1e-5,
        rotary_pct=0.25,
        rotary_emb_base=10_000,
        use_parallel_residual=True,
    ),
    "falcon": of(
        "Falcon",
        alibi=False,
        bias=True,
        layer_norm_epsilon=1e-5,
        new_decoder_architecture=True,
        num_kv_heads=2,
        num_ln_in_parallel_attn=2,
    ),
    "gpt-oss": of("GptOss", num_local_experts=4, num_experts_per_tok=2, sliding_window=64),
    "longrope": of(
        "Phi3",
        rope_scaling={
            "type": "longrope",
            "original_max_position_embeddings": 2048,
            "short_factor": [1.0] * 8,
            "long_factor": [2.0] * 8,
        },
    ),
    "dynamic": {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "qwen2-moe": of("Qwen2Moe", **EXPERTS, shared_expert_intermediate_size=80, qkv_bias=True),
}
"""By architecture, with every key that it reads."""
REMOVED = object()
WRONG: dict[str, Any] = {
    "removed": REMOVED,
    "null": None,
    "text": "x",
    "empty text": "",
    "true": True,
    "false": False,
    "zero": 0,
    "negative": -3,
    "one": 1,
    "odd": 7,
    "fraction": 0.5,
    "tiny": 1e-300,
    "whole fraction": 4.0,
    "huge": 10**12,
    "longer than a float": 10**400,
    "huge fraction": 1e300,
    "nan": float("nan"),
    "infinity": float("inf"),
    "empty list": [],
    "list": [1, "x", None],
    "lists": [[1], {"a": 2}],
    "long list": [3] * 2_000,
    "empty object": {},
    "object": {"a": {"b": [1]}},
}
MOST_KIB = 256 << 10


def paths(values: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from paths(value, (*above, key))


def changed(values: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The values with another one at a path."""
    first, *rest = path
    new = changed(values[first], tuple(rest), value) if rest else value
    return {key: each for key, each in {**values, first: new}.items() if each is not REMOVED}


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def read_both(folder: Path, values: dict[str, Any]) -> EngineError | None:
    """Read the model, its policies and its tensors; None where only the tensors are missing."""
    (folder / "config.json").write_text(json.dumps(values))
    try:
        found = find_model(str(folder))
    except EngineError as error:
        return error
    found.policies()
    assert parameters(found.config) > 0
    with pytest.raises(EngineError, match=r"no such file|safetensors"):
        found.stored(found.config)
    return None


@pytest.mark.parametrize("name", CONFIGS)
def test_a_wrong_value_is_a_model_or_one_line_with_file_and_key(name: str, tmp_path: Path) -> None:
    valid = BASIS | CONFIGS[name]
    assert read_both(tmp_path, valid) is None
    refused = 0
    before = peak_kib()
    for path in paths(valid):
        for kind, value in WRONG.items():
            error = read_both(tmp_path, changed(valid, path, value))
            if error is None:
                continue
            refused += 1
            said = str(error)
            assert said.startswith(f"{tmp_path}/config.json: "), (path, kind, said)
            assert len(said.splitlines()) == 1, (path, kind, said)
            assert len(said) < 500, (path, kind, said[:200])
    assert peak_kib() - before < MOST_KIB
    assert refused > 100
