"""Model presets."""

import json
from dataclasses import asdict, replace

import pytest
from pydantic import TypeAdapter

from servetwin.engine.models.model_config import PRESETS, LatentConfig, ModelConfig, model_preset
from servetwin.engine.models.rope_scaling import RopeScaling
from servetwin.engine.models.tensor_layout import parameters as count
from servetwin.workloads.errors import EngineError
from tests.support.model_matrix import ALL_MODELS


@pytest.mark.parametrize(
    ("name", "parameters", "kv_bytes_per_token"),
    [
        ("base", 52_572_672, 2 * 12 * 2 * 64 * 2),
        ("llama-0.6b", 596_049_920 - 28 * 2 * 128, 2 * 28 * 8 * 128 * 2),
        ("llama-1b", 1_235_814_400, 2 * 16 * 8 * 64 * 2),
        ("llama-8b", 8_030_261_248, 2 * 32 * 8 * 128 * 2),
    ],
)
def test_presets_have_the_published_sizes(
    name: str, parameters: int, kv_bytes_per_token: int
) -> None:
    assert count(model_preset(name)) == parameters
    assert model_preset(name).kv_bytes_per_token(dtype_bytes=2) == kv_bytes_per_token


def test_the_default_preset_is_base() -> None:
    assert model_preset() is PRESETS["base"]


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(EngineError, match=r"unknown model 'lama-8b'; did you mean 'llama-8b'\?"):
        model_preset("lama-8b")


TINY = model_preset("tiny")


@pytest.mark.parametrize("config", [TINY, *ALL_MODELS.values()], ids=["plain", *ALL_MODELS])
def test_a_model_survives_json(config: ModelConfig) -> None:
    assert TypeAdapter(ModelConfig).validate_json(json.dumps(asdict(config))) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_heads": 3}, "model tiny: 4 heads cannot share 3 kv_heads evenly"),
        ({"head_dim": 33}, "model tiny: a rotary width of 33 is not even"),
        ({"windows": (8,)}, "model tiny: 1 windows for 2 layers"),
        ({"windows": (8, 0)}, "model tiny: a window must be at least 1 token"),
        ({"kv_sharing": 3}, "model tiny: kv_sharing 3 does not divide 2 layers"),
        ({"weight_sharing": 0}, "model tiny: weight_sharing 0 does not divide 2 layers"),
        (
            {"weight_sharing": 2, "kv_sharing": 2},
            "model tiny: layers with one latent or with shared weights share no keys",
        ),
        (
            {"latent": LatentConfig(8, 8, 8)},
            "model tiny: latent attention has one kv head, and rope_dim below head_dim",
        ),
        (
            {"latent": LatentConfig(8, 8, 8), "kv_heads": 1, "qk_norm": True},
            "model tiny: latent attention has neither biases nor norms of queries and keys",
        ),
    ],
)
def test_impossible_shapes_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(EngineError, match=f"^{message}$"):
        replace(TINY, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "factor", "message"),
    [
        ("linear", 0.0, "rope scaling: factor 0.0 must be above 0"),
    ],
)
def test_impossible_rope_scaling_is_refused(kind: str, factor: float, message: str) -> None:
    with pytest.raises(EngineError, match=f"^{message}$"):
        RopeScaling(kind, factor)  # type: ignore[arg-type]
