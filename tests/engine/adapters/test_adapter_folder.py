"""Adapters in folders, and each way in which one can be wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from servetwin.engine.adapters.adapter_folder import CONFIG_FILE, TENSOR_FILE, read_adapter
from servetwin.engine.models.model_config import model_preset
from servetwin.workloads.errors import EngineError
from tests.support.adapter_folders import adapter_tensors, tensor_name, write_adapter

TINY = model_preset("tiny")
Q_DOWN, Q_UP = (tensor_name(0, "q_proj", letter) for letter in "AB")


def tensors() -> dict[str, torch.Tensor]:
    return adapter_tensors(TINY, ["q_proj"], 1)


@pytest.mark.parametrize(("settings", "scale"), [({}, 2.0), ({"use_rslora": True}, 4.0)])
def test_the_scale_is_alpha_by_the_rank_or_its_root(
    tmp_path: Path, settings: dict[str, Any], scale: float
) -> None:
    adapter = read_adapter("a", write_adapter(tmp_path, tensors(), **settings), TINY)
    assert adapter.scale == scale
    assert [update.layer for update in adapter.updates] == [0, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"r": 0}, "r must be a whole number from 1 to 2147483647 (got 0)"),
        ({"r": None}, "r is missing"),
        ({"peft_type": "IA3"}, 'peft_type "IA3" is not supported by the engine; it supports only'),
        (
            {"use_dora": True},
            "use_dora true is not supported by the engine; it supports only False",
        ),
        ({"bias": "all"}, 'bias "all" is not supported by the engine; it supports only'),
        ({"modules_to_save": ["lm_head"]}, 'modules_to_save ["lm_head"] is not supported'),
        ({"rank_pattern": {"q_proj": 8}}, 'rank_pattern {"q_proj": 8} is not supported'),
    ],
)
def test_a_config_that_would_change_more_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    folder = write_adapter(tmp_path, tensors(), **settings)
    with pytest.raises(EngineError) as caught:
        read_adapter("a", folder, TINY)
    assert str(caught.value).startswith(f"{folder / CONFIG_FILE}: {message}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({Q_UP: None}, f"has {Q_DOWN}, and no lora_B beside it"),
        (
            {Q_UP: torch.zeros(128, 3)},
            f"tensor {Q_UP} is [128, 3]; the model and rank 4 want [128,",
        ),
        ({Q_DOWN: torch.zeros(4, 128).int()}, f"tensor {Q_DOWN} is I32; use F32, BF16, F16"),
        ({tensor_name(2, "q_proj", "A"): torch.zeros(4, 128)}, "model tiny has 2 layers"),
        ({tensor_name(0, "q_prj", "A"): torch.zeros(4, 128)}, "did you mean 'q_proj'?"),
        ({"base_model.model.lm_head.lora_A.weight": torch.zeros(4, 128)}, "q_proj, k_proj, v_proj"),
    ],
)
def test_a_tensor_that_does_not_belong_is_named(
    tmp_path: Path, changes: dict[str, torch.Tensor | None], message: str
) -> None:
    stored = {name: t for name, t in (tensors() | changes).items() if t is not None}
    folder = write_adapter(tmp_path, stored)
    with pytest.raises(EngineError) as caught:
        read_adapter("a", folder, TINY)
    assert str(caught.value).startswith(f"{folder / TENSOR_FILE}: ")
    assert message in str(caught.value)


def test_folders_without_an_adapter_say_so(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no such folder"):
        read_adapter("a", tmp_path / "nowhere", TINY)
    with pytest.raises(EngineError, match=r"adapter_config\.json: no such file"):
        read_adapter("a", tmp_path, TINY)
    (tmp_path / CONFIG_FILE).write_text(json.dumps({"r": 4, "lora_alpha": 8}))
    with pytest.raises(EngineError, match=r"has no adapter_model\.safetensors"):
        read_adapter("a", tmp_path, TINY)
    (tmp_path / TENSOR_FILE).write_bytes(b"nonsense")
    with pytest.raises(EngineError, match="is no safetensors file"):
        read_adapter("a", tmp_path, TINY)
