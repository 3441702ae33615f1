"""``servetwin presets``: every known server, what it sets, and which are copies."""

import json

from servetwin.policies.presets import PRESETS
from tests.support.command import refused, servetwin


def test_every_preset_is_listed_with_all_that_it_sets() -> None:
    printed = servetwin("presets").out
    assert [line for line in printed.splitlines() if not line.startswith(" ")] == list(PRESETS)
    assert max(map(len, printed.splitlines())) <= 100
    settings = printed.split()
    for preset in PRESETS.values():
        for key, value in {**preset.policies, **preset.cluster}.items():
            assert f"{key}={value}" in settings


def test_a_copy_and_eager_kernels_are_said() -> None:
    assert "same figures as vllm-v0" in servetwin("presets", "openllm").out
    assert "same figures" not in servetwin("presets", "vllm-v0").out
    assert "kernels of eager PyTorch" in servetwin("presets", "hf-transformers").out
    assert "kernels" not in servetwin("presets", "sarathi").out


def test_presets_as_numbers() -> None:
    found = json.loads(servetwin("presets", "paddle", "distserve", "--json").out)
    assert list(found) == ["paddle", "distserve"]
    assert found["distserve"]["cluster"] == PRESETS["distserve"].cluster
    assert found["paddle"]["copy_of"] is None


def test_a_preset_that_does_not_exist_is_named_with_the_nearest() -> None:
    assert "unknown preset 'opnllm'; did you mean 'openllm'?" in refused("presets", "opnllm")
