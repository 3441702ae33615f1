"""Shapes from Hugging Face configs: published models, odd keys, unknown types."""

from typing import Any

import pytest

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.hf_config import model_from_hf_config
from servetwin.sim.catalogue.layers import Dense, Experts, LatentAttention, Recurrence
from servetwin.sim.catalogue.model import ModelShape
from servetwin.workloads.errors import ShapeError
from tests.support.hf_configs import DEEPSEEK, LLAMA, QWEN_EXPERTS, WIDE_HEADS, windows


def read(**config: Any) -> ModelShape:
    return model_from_hf_config(config, "mine")


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


def assert_shipped(name: str, shape: ModelShape) -> None:
    """The shape is that of the shipped model, but for what it is called."""
    shipped = find_model(name)
    update = {"name": shipped.name, "source": shipped.source, "quantisation": shipped.quantisation}
    assert shape.model_copy(update=update) == shipped


def test_a_config_gives_the_shipped_shape() -> None:
    assert_shipped("llama-2-7b", read(**LLAMA_2_7B))


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
    assert_shipped("mistral-7b", read(**mistral, sliding_window=4096))
    assert windows(read(**mistral, sliding_window=None)) == [(32, None)]
    experts = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    assert_shipped("mixtral-8x7b", read(**{**mistral, **experts}, sliding_window=None))


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
    assert_shipped("deepseek-v3", shape)


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


def block(mult: object, group: int | None, **attention: bool) -> dict[str, Any]:
    mixer = {"n_heads_in_group": group, "no_op": group is None, **attention}
    return {"attention": mixer, "ffn": {"ffn_mult": mult, "no_op": mult is None}}


SEARCHED = {"model_type": "nemotron-nas", "hidden_size": 1536, "num_attention_heads": 8,
            "vocab_size": 100, "max_position_embeddings": 512}  # fmt: skip


def test_blocks_of_a_searched_architecture_differ() -> None:
    blocks = [
        block(1.5, 4), block(2.625, None), block(3, 2), block(None, 2),
        block(None, None, no_op=False, replace_with_linear=True),
    ]  # fmt: skip
    shape = read(**SEARCHED, block_configs=blocks)
    assert [(g.mixer.kv_groups(), g.ffn) for g in shape.layers] == [
        (2, Dense(width=1536 + 2816)),  # 1.5 and 2.625 times 2/3 d, up to multiples of 256
        (4, Dense(width=3072)),
        (4, Dense(width=512)),  # a product of d x d in place of attention
    ]
    assert "a block without attention widens the FFN before it" in shape.source


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        (None, "must have at least one entry"),
        ([block(1, None)], "attention in the first block"),
        ([block("wide", 4)], r"ffn_mult must be a number above 0 \(got 'wide'\)"),
        ([block(-1, 4)], r"ffn_mult must be a number above 0 \(got -1\)"),
        ([block(1e300, 4)], r"ffn_mult must be a number above 0 \(got 1e"),
        ([block(1, 0)], "n_heads_in_group must be a whole number from 1 to 8"),
        ([{"ffn": {}}], r"block_configs.0.: attention must be an object"),
        ([7], "a list of dict"),
    ],
)
def test_a_block_that_cannot_be_is_refused(blocks: Any, says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        read(**SEARCHED, block_configs=blocks)


def test_mamba_layers_among_attention_and_values_that_every_layer_repeats() -> None:
    shape = read(
        **LLAMA, model_type="granitemoehybrid", layer_types=5 * ["mamba"] + ["attention"],
        mamba_n_heads=8, mamba_d_head=16, mamba_d_state=32, mamba_n_groups=1, mamba_d_conv=4,
        num_local_experts=[4] * 6, num_experts_per_tok=2,
    )  # fmt: skip
    state, attention = shape.layers
    assert (state.count, attention.count) == (5, 1)
    inner, convolved = 8 * 16, 8 * 16 + 2 * 32
    projected = 64 * (inner + convolved + 8) + inner * 64
    assert state.mixer == Recurrence(
        state_size=inner * 32 + 3 * convolved, mixer_params=projected + 4 * convolved + 16
    )
    assert isinstance(attention.ffn, Experts)
    assert attention.ffn.experts == 4
