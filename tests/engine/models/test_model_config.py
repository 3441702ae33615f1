"""Model presets."""

import pytest

from engine.models.model_config import PRESETS, model_preset
from workloads.errors import EngineError


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
    assert model_preset(name).parameters == parameters
    assert model_preset(name).kv_bytes_per_token(dtype_bytes=2) == kv_bytes_per_token


def test_the_default_preset_is_base() -> None:
    assert model_preset() is PRESETS["base"]


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(EngineError, match=r"unknown model 'lama-8b': did you mean 'llama-8b'\?"):
        model_preset("lama-8b")
