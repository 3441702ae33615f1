"""Parameters, keys and values, and states of published models."""

import pytest

from servetwin.sim.catalogue.catalogue import find_model

BYTES = 2  # per element, in all tables


@pytest.mark.parametrize(
    ("name", "params", "kv_bytes"),
    [
        ("llama-2-7b", 6_738_149_376, 524_288),
        ("llama-2-13b", 13_015_449_600, 819_200),
        ("llama-2-70b", 68_975_329_280, 327_680),
        ("llama-3-8b", 8_029_995_008, 131_072),
        ("mistral-7b", 7_241_465_856, 131_072),
    ],
)
def test_parameters_and_keys_and_values_to_the_digit(name: str, params: int, kv_bytes: int) -> None:
    model = find_model(name)
    assert not model.tied_embeddings
    assert model.params() == model.active_params() == params
    assert BYTES * model.kv_elements_per_token() == kv_bytes


@pytest.mark.parametrize(
    ("name", "billions", "digits", "kv_bytes"),
    [("opt-13b", 12.85, 2, 819_200), ("opt-66b", 65.7, 1, 2_359_296)],
)
def test_opt_within_the_printed_digits(
    name: str, billions: float, digits: int, kv_bytes: int
) -> None:
    model = find_model(name)
    assert model.tied_embeddings
    assert round(model.params() / 1e9, digits) == billions
    assert BYTES * model.kv_elements_per_token() == kv_bytes


def test_mixtral_has_46_70_and_uses_12_88_billion() -> None:
    model = find_model("mixtral-8x7b")
    assert round(model.params() / 1e9, 2) == 46.70
    assert round(model.active_params() / 1e9, 2) == 12.88
    assert BYTES * model.kv_elements_per_token() == 131_072


def test_gpt_3_has_its_layers_one_embedding_and_learned_positions() -> None:
    model = find_model("gpt-3-175b")
    assert model.linear_params() == 173_946_175_488
    assert model.linear_params() + model.head_params() == 174_563_733_504
    assert model.params() == 174_563_733_504 + 2048 * 12_288
    assert BYTES * model.kv_elements_per_token() == 4_718_592


def test_llama_3_405b_within_half_a_percent() -> None:
    assert find_model("llama-3-405b").params() == pytest.approx(405.9e9, rel=0.005)


@pytest.mark.parametrize(
    ("name", "total", "beyond_embedding"),
    [
        ("0.6b", 0.6, 0.44),
        ("1.7b", 1.7, 1.4),
        ("4b", 4.0, 3.6),
        ("8b", 8.2, 6.95),
        ("14b", 14.8, 13.2),
        ("32b", 32.8, 31.2),
        ("30b-a3b", 30.5, 29.9),
    ],
)
def test_qwen3_as_on_its_model_cards(name: str, total: float, beyond_embedding: float) -> None:
    """The cards print billions, with and without embedding and head, to these digits."""
    model = find_model(f"qwen3-{name}")
    assert round(model.params() / 1e9, 1) == total
    digits = len(str(beyond_embedding).partition(".")[2])
    assert round(model.linear_params() / 1e9, digits) == beyond_embedding


def test_qwen3_30b_uses_3_3_billion() -> None:
    assert round(find_model("qwen3-30b-a3b").active_params() / 1e9, 1) in (3.3, 3.4)


@pytest.mark.parametrize(
    ("name", "total", "layers", "active"),
    [("deepseek-v2", 236e9, 60, 21e9), ("deepseek-v3", 671e9, 61, 36.6e9)],
)
def test_deepseek_keeps_a_latent_and_uses_few_of_its_parameters(
    name: str, total: float, layers: int, active: float
) -> None:
    """Active as its authors count: with the head, without the embedding."""
    model = find_model(name)
    assert model.params() == pytest.approx(total, rel=0.01)
    assert model.active_params() - model.head_params() == pytest.approx(active, rel=0.01)
    assert model.kv_elements_per_token() == layers * 576


def test_deepseek_v2_keeps_69_120_bytes_per_token() -> None:
    assert BYTES * find_model("deepseek-v2").kv_elements_per_token() == 69_120


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("mamba-2.8b", 5_242_880),
        ("retnet-like-7b", 16_777_216),
        ("rwkv-4-7b", 5 * 32 * 4096),
        ("rwkv-4-14b", 5 * 40 * 5120),
    ],
)
def test_recurrent_models_keep_a_state_and_nothing_per_token(name: str, elements: int) -> None:
    model = find_model(name)
    assert model.state_elements() == elements
    assert model.resident_kv_elements(1) == model.resident_kv_elements(100_000) == elements


def test_mamba_has_the_published_parameters_less_norms_and_biases() -> None:
    """2,768,345,600 as published; per layer two biases of 5120 and a norm, and one norm more."""
    left_out = 64 * (2 * 5120 + 2560) + 2560
    assert find_model("mamba-2.8b").params() == 2_768_345_600 - left_out


@pytest.mark.parametrize(("name", "published"), [("rwkv-4-7b", 7.393e9), ("rwkv-4-14b", 1.415e10)])
def test_rwkv_has_the_published_parameters_less_norms(name: str, published: float) -> None:
    """2 V D + 13 D^2 L + D (11 L + 4), of which 4 D a layer and 4 D in all are norms."""
    model = find_model(name)
    width, layers = model.width, model.layer_count
    formula = 2 * 50277 * width + 13 * width**2 * layers + width * (11 * layers + 4)
    assert float(f"{formula:.4g}") == published
    assert model.params() == formula - 4 * width * (layers + 1)


def test_glam_has_the_published_parameters() -> None:
    """1.2T in 64 layers, experts in every other one, and 96.6B for a token."""
    model = find_model("glam-64b-64e")
    assert round(model.params() / 1e12, 1) == 1.2
    assert round(model.active_params() / 1e9, 1) == 96.6
    assert [group.count for group in model.layers] == [32, 32]


def test_mistral_keeps_its_window() -> None:
    model = find_model("mistral-7b")
    at_window = 4096 * model.kv_elements_per_token()
    assert model.resident_kv_elements(4095) == at_window - model.kv_elements_per_token()
    assert model.resident_kv_elements(4096) == model.resident_kv_elements(32_768) == at_window
