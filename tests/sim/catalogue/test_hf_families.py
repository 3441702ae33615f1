"""What families leave out, against the models that transformers builds."""

import re
import warnings
from typing import Any

import pytest

from servetwin.sim.catalogue.hf_config import model_from_hf_config
from servetwin.workloads.models.description import NESTED_DEFAULTS
from tests.support.hf_configs import (
    DEEPSEEK,
    LATE_EXPERTS,
    LLAMA,
    QWEN_EXPERTS,
    WIDE_HEADS,
    windows,
)

pytestmark = pytest.mark.slow

LEFT_OUT = re.compile(r"norm|ln_|bias$|sinks|shared_expert_gate|act_fn")
"""Norms, biases, and a few weights of gates, sinks and activations."""
NO_GROUPS = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
GPT_2 = {"vocab_size": 500, "n_embd": 64, "n_layer": 6, "n_head": 4, "n_positions": 128}
GPT_J = {**GPT_2, "rotary_dim": 8}
BLOOM = {"vocab_size": 500, "hidden_size": 64, "n_layer": 6, "n_head": 4}
OPT = {**NO_GROUPS, "ffn_dim": 96, "word_embed_proj_dim": 64, "max_position_embeddings": 128}
MAMBA = {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 6}
SMALL: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "mixtral": {**LLAMA, "num_local_experts": 4},
    "qwen2": LLAMA,
    "qwen2_moe": {**LLAMA, **QWEN_EXPERTS, "decoder_sparse_step": 2},
    "qwen3": WIDE_HEADS,
    "qwen3_moe": {**WIDE_HEADS, **QWEN_EXPERTS, "mlp_only_layers": [1]},
    "gemma": WIDE_HEADS,
    "gemma2": WIDE_HEADS,
    "gemma3_text": WIDE_HEADS,
    "phi": LLAMA,
    "phi3": LLAMA,
    "phimoe": {**LLAMA, "num_local_experts": 4},
    "opt": OPT,
    "gpt2": GPT_2,
    "gpt_bigcode": GPT_2,
    "gpt_neox": NO_GROUPS,
    "gptj": GPT_J,
    "codegen": GPT_J,
    "bloom": BLOOM,
    "mpt": {"vocab_size": 500, "d_model": 64, "n_layers": 6, "n_heads": 4},
    "falcon": {**MAMBA, "num_attention_heads": 4, "multi_query": True},
    "starcoder2": LLAMA,
    "stablelm": LLAMA,
    "nemotron": {**LLAMA, "head_dim": 16},
    "cohere": LLAMA,
    "cohere2": {**LLAMA, "head_dim": 16},
    "olmo": LLAMA,
    "olmo2": LLAMA,
    "olmoe": {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2},
    "granite": LLAMA,
    "granitemoe": {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2},
    "olmo3": LLAMA,
    "arcee": LLAMA,
    "apertus": LLAMA,
    "dots1": {**LATE_EXPERTS, "head_dim": 16, "n_shared_experts": 2},
    "glm4": {**LLAMA, "head_dim": 16},
    "glm4_moe": {**LATE_EXPERTS, "head_dim": 16},
    "seed_oss": {**LLAMA, "head_dim": 16},
    "smollm3": LLAMA,
    "gpt_oss": {**WIDE_HEADS, "num_local_experts": 4},
    "llama4_text": {**LLAMA, "num_local_experts": 4, "interleave_moe_layer_step": 2},
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "mamba": MAMBA,
    "falcon_mamba": MAMBA,
    "bamba": {**LLAMA, "mamba_n_heads": 8, "mamba_d_state": 16, "attn_layer_indices": [1, 3]},
    "mamba2": {**MAMBA, "num_heads": 8, "head_dim": 16, "n_groups": 2},
}


@pytest.fixture(scope="module")
def transformers() -> Any:
    """Import the package here: it takes seconds, and only the process that runs these needs it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    return transformers


def hf_config(transformers: Any, model_type: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.CONFIG_MAPPING[model_type](**SMALL[model_type])


@pytest.mark.parametrize("model_type", SMALL)
def test_parameters_are_those_of_the_model_that_transformers_builds(
    transformers: Any, model_type: str
) -> None:
    import torch

    config = hf_config(transformers, model_type)
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_config(config)
    counted = {name: p.numel() for name, p in model.named_parameters() if not LEFT_OUT.search(name)}
    shape = model_from_hf_config(config.to_dict(), model_type)
    assert shape.params() == sum(counted.values())
    assert "not known" not in shape.source


@pytest.mark.parametrize(
    "model_type", ["gemma2", "gemma3_text", "cohere2", "gpt_oss", "llama4_text", "qwen2"]
)
def test_windows_are_the_same_with_layer_types_and_by_the_rule_of_the_class(
    transformers: Any, model_type: str
) -> None:
    said = hf_config(transformers, model_type).to_dict()
    assert said.get("layer_types")
    silent = {key: said[key] for key in said.keys() - {"layer_types", "_sliding_window_pattern"}}
    assert windows(model_from_hf_config(said, "")) == windows(model_from_hf_config(silent, ""))


@pytest.mark.parametrize("model_type", NESTED_DEFAULTS)
def test_what_a_text_part_may_leave_out_is_what_its_class_assumes(
    transformers: Any, model_type: str
) -> None:
    class_of_text = "gemma3_text" if model_type == "gemma3" else model_type
    known = transformers.CONFIG_MAPPING[class_of_text]().to_dict()
    defaults = NESTED_DEFAULTS[model_type]
    assert {key: known[key] for key in defaults} == defaults
