"""Hugging Face configs as model shapes, against what ``transformers`` builds from them."""

import re
import warnings
from typing import Any

import pytest
import torch

from sim.shapes import Attention, Experts, LatentAttention, ModelShape, find_model
from sim.shapes.hf_config import model_from_hf_config
from sim.shapes.hf_families import NESTED_DEFAULTS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

LEFT_OUT = re.compile(r"norm|ln_|bias$|sinks|shared_expert_gate")
"""Norms, biases, and a few weights of gates and sinks."""

LLAMA = {
    "vocab_size": 500,
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "pad_token_id": 0,
}
NO_GROUPS = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
GPT_2 = {"vocab_size": 500, "n_embd": 64, "n_layer": 6, "n_head": 4, "n_positions": 128}
GPT_J = {**GPT_2, "rotary_dim": 8}
BLOOM = {"vocab_size": 500, "hidden_size": 64, "n_layer": 6, "n_head": 4}
OPT = {**NO_GROUPS, "ffn_dim": 96, "word_embed_proj_dim": 64, "max_position_embeddings": 128}
MAMBA = {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 6}
WIDE_HEADS = {**LLAMA, "head_dim": 32}
QWEN_EXPERTS = {"moe_intermediate_size": 32, "num_experts": 6, "num_experts_per_tok": 2}
LATE_EXPERTS = {
    **LLAMA,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 2,
    "n_group": 2,
    "topk_group": 1,
}
DEEPSEEK = {
    **LATE_EXPERTS,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}
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
    "mamba2": {**MAMBA, "num_heads": 8, "head_dim": 16, "n_groups": 2},
}


def hf_config(model_type: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CONFIG_MAPPING[model_type](**SMALL[model_type])


def windows(shape: ModelShape) -> list[tuple[int, int | None]]:
    """(layers, window) of each group with attention."""
    return [
        (group.count, group.mixer.window_tokens)
        for group in shape.layers
        if isinstance(group.mixer, Attention)
    ]


def read(**config: Any) -> ModelShape:
    return model_from_hf_config(config, "mine")


@pytest.mark.parametrize("model_type", SMALL)
def test_parameters_are_those_of_the_model_that_transformers_builds(model_type: str) -> None:
    config = hf_config(model_type)
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        build: Any = AutoModelForCausalLM.from_config
        model = build(config)
    counted = {name: p.numel() for name, p in model.named_parameters() if not LEFT_OUT.search(name)}
    shape = model_from_hf_config(config.to_dict(), model_type)
    assert shape.params() == sum(counted.values())
    assert "not known" not in shape.source


@pytest.mark.parametrize(
    "model_type", ["gemma2", "gemma3_text", "cohere2", "gpt_oss", "llama4_text", "qwen2"]
)
def test_windows_are_the_same_with_layer_types_and_by_the_rule_of_the_class(
    model_type: str,
) -> None:
    said = hf_config(model_type).to_dict()
    assert said.get("layer_types")
    silent = {key: said[key] for key in said.keys() - {"layer_types", "_sliding_window_pattern"}}
    assert windows(model_from_hf_config(said, "")) == windows(model_from_hf_config(silent, ""))


@pytest.mark.parametrize("model_type", NESTED_DEFAULTS)
def test_what_a_text_part_may_leave_out_is_what_its_class_assumes(model_type: str) -> None:
    known = CONFIG_MAPPING["gemma3_text" if model_type == "gemma3" else model_type]().to_dict()
    defaults = NESTED_DEFAULTS[model_type]
    assert {key: known[key] for key in defaults} == defaults


LLAMA_2_7B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}


def shipped_alike(name: str, shape: ModelShape) -> None:
    """The shape is that of the shipped model, but for what it is called."""
    shipped = find_model(name)
    update = {"name": shipped.name, "source": shipped.source}
    assert shape.model_copy(update=update) == shipped


def test_a_config_gives_the_shipped_shape() -> None:
    shipped_alike("llama-2-7b", read(**LLAMA_2_7B))


def test_a_config_without_model_type_is_known_by_its_class() -> None:
    config = {key: LLAMA_2_7B[key] for key in LLAMA_2_7B.keys() - {"model_type"}}
    assert read(**config).source == "Hugging Face config.json, model type llama"
    assert read(**{**LLAMA_2_7B, "model_type": None}).params() == 6_738_149_376


def test_mistral_has_its_window_and_mixtral_its_experts() -> None:
    mistral = {
        **LLAMA_2_7B,
        "model_type": "mistral",
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 32768,
    }
    shipped_alike("mistral-7b", read(**mistral, sliding_window=4096))
    assert windows(read(**mistral, sliding_window=None)) == [(32, None)]
    experts = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    shipped_alike("mixtral-8x7b", read(**{**mistral, **experts}, sliding_window=None))


def test_deepseek_v3_has_dense_layers_first() -> None:
    shape = read(
        model_type="deepseek_v3",
        hidden_size=7168,
        intermediate_size=18432,
        moe_intermediate_size=2048,
        num_hidden_layers=61,
        num_attention_heads=128,
        num_key_value_heads=128,
        n_shared_experts=1,
        n_routed_experts=256,
        num_experts_per_tok=8,
        first_k_dense_replace=3,
        moe_layer_freq=1,
        kv_lora_rank=512,
        q_lora_rank=1536,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        vocab_size=129280,
        max_position_embeddings=163840,
        num_nextn_predict_layers=1,
    )
    shipped_alike("deepseek-v3", shape)


def test_the_light_deepseek_v2_has_no_query_latent() -> None:
    mixer = model_from_hf_config({**DEEPSEEK, "q_lora_rank": None}, "").layers[0].mixer
    assert isinstance(mixer, LatentAttention)
    assert mixer.query_latent_dim is None


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (
            {
                "model_type": "falcon",
                "hidden_size": 4544,
                "num_attention_heads": 71,
                "num_hidden_layers": 32,
                "vocab_size": 65024,
                "multi_query": True,
                "new_decoder_architecture": False,
            },
            6_921_720_704,
        ),
        (
            {
                "model_type": "gpt2",
                "n_embd": 768,
                "n_head": 12,
                "n_layer": 12,
                "n_positions": 1024,
                "vocab_size": 50257,
            },
            124_439_808,
        ),
        (
            {
                "model_type": "gpt_oss",
                "hidden_size": 2880,
                "head_dim": 64,
                "num_attention_heads": 64,
                "num_key_value_heads": 8,
                "num_hidden_layers": 24,
                "num_local_experts": 32,
                "experts_per_token": 4,
                "intermediate_size": 2880,
                "sliding_window": 128,
                "vocab_size": 201088,
            },
            20.91e9,
        ),
        (
            {
                "model_type": "mamba",
                "hidden_size": 2560,
                "num_hidden_layers": 64,
                "state_size": 16,
                "expand": 2,
                "conv_kernel": 4,
                "time_step_rank": "auto",
                "vocab_size": 50280,
            },
            2_768_345_600,
        ),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_published_configs_have_the_published_parameters(
    config: dict[str, Any], published: float
) -> None:
    """Published with norms and biases, which are less than a thousandth."""
    assert model_from_hf_config(config, "").params() == pytest.approx(published, rel=1e-3)


FALCON_40B = {
    "model_type": "falcon",
    "hidden_size": 8192,
    "num_attention_heads": 128,
    "num_hidden_layers": 60,
    "vocab_size": 65024,
    "multi_query": True,
}


@pytest.mark.parametrize(
    ("keys", "kv_heads"),
    [
        ({"new_decoder_architecture": True, "num_kv_heads": 8}, 8),
        ({"new_decoder_architecture": False, "num_kv_heads": 8}, 1),
        ({"multi_query": False}, 128),
    ],
)
def test_kv_heads_of_falcon(keys: dict[str, Any], kv_heads: int) -> None:
    (attention,) = read(**{**FALCON_40B, **keys}).attentions()
    assert attention.kv_heads == kv_heads


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [(6, None)]),
        ({"use_sliding_window": False, "sliding_window": 32}, [(6, None)]),
        ({"sliding_window": 32, "max_window_layers": 4}, [(6, None)]),
        (
            {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 4},
            [(4, None), (2, 32)],
        ),
        ({"use_sliding_window": True, "sliding_window": 0}, [(6, None)]),
        (
            {
                "use_sliding_window": True,
                "sliding_window": 32,
                "layer_types": ["sliding_attention"] + 5 * ["full_attention"],
            },
            [(1, 32), (5, None)],
        ),
    ],
)
def test_windows_of_qwen(keys: dict[str, Any], expected: list[tuple[int, int | None]]) -> None:
    assert windows(read(**WIDE_HEADS, model_type="qwen3", **keys)) == expected


def test_the_text_part_of_a_multimodal_config_leaves_defaults_out() -> None:
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    gemma = read(model_type="gemma3", text_config=text, vision_config={"hidden_size": 1152})
    assert gemma.params() == pytest.approx(3.88e9, rel=1e-3)
    assert windows(gemma) == [(29, 1024), (5, None)]
    llava = read(
        model_type="llava",
        text_config={"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096},
    )
    assert llava.params() == 6_738_149_376 + 2 * 64 * 4096
    assert not llava.tied_embeddings
    assert windows(read(text_config={"model_type": "mistral"})) == [(32, 4096)]
    assert windows(read(text_config={"model_type": "mistral", "sliding_window": None})) == [
        (32, None)
    ]


def test_the_outer_config_says_whether_the_head_is_the_embedding_if_the_text_part_does_not() -> (
    None
):
    text = {**LLAMA, "model_type": "qwen2"}
    assert read(model_type="qwen2_vl", text_config=text, tie_word_embeddings=True).tied_embeddings
    text["tie_word_embeddings"] = False
    outer = read(model_type="qwen2_vl", text_config=text, tie_word_embeddings=True)
    assert not outer.tied_embeddings


def test_an_unknown_type_is_read_by_its_keys_with_a_note() -> None:
    known, unknown = read(**LLAMA, model_type="llama"), read(**LLAMA, model_type="nemesis")
    assert unknown.params() == known.params()
    assert unknown.source.endswith(
        "model type nemesis, not known here: read as Llama-like by its keys"
    )
    plain = read(**LLAMA, model_type="nemesis", hidden_act="gelu_new")
    assert plain.layers[0].ffn.params(64) == 2 * 64 * 96


def test_a_shared_expert_and_a_router_are_counted() -> None:
    shape = read(
        **LLAMA, **QWEN_EXPERTS, model_type="qwen2_moe", shared_expert_intermediate_size=48
    )
    (group,) = shape.layers
    assert isinstance(group.ffn, Experts)
    assert group.ffn.params(64) == 6 * 64 + 3 * 64 * 48 + 6 * 3 * 64 * 32


@pytest.mark.parametrize(
    ("model_type", "context"), [("llama", 2048), ("mamba", 2**20), ("nemesis", 2048)]
)
def test_a_context_that_is_not_stated(model_type: str, context: int) -> None:
    shape = read(
        **LLAMA,
        model_type=model_type,
        state_size=16,
        conv_kernel=4,
        expand=2,
        time_step_rank=4,
    )
    assert shape.max_model_len == context
