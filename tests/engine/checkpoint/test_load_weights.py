"""What transformers has written is read as it was, by every way of writing it."""

import gc
import warnings
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from servetwin.engine.checkpoint.find_model import find_model
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.weights import Weights
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from tests.support.checkpoints import LLAMA, edit_tensors, write_checkpoint
from tests.support.engine_oracle import PROMPTS, draw_weights
from tests.support.model_matrix import MODELS
from tests.support.nested_tensors import tensors_of
from tests.support.recorded_core import run_greedy

CPU = torch.device("cpu")
MAX_LOGIT_ERROR = 1e-4
NEW_TOKENS = 24


def loaded(folder: Path, dtype: torch.dtype = torch.float32) -> Weights:
    found = find_model(str(folder))
    load = found.load_weights(found.config)
    assert load is not None
    return load(dtype, CPU)


def assert_same(found: Weights, expected: Weights, dtype: torch.dtype) -> None:
    pairs = list(zip(tensors_of(found), tensors_of(expected), strict=True))
    assert len(pairs) > 10
    for read, drawn in pairs:
        assert read.dtype == dtype
        assert torch.equal(read, drawn.to(dtype))


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_config_and_weights_come_back_to_the_last_bit(config: ModelConfig, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "mine", config)
    found = find_model(str(folder)).config
    ffn_size = found.ffn_size if config.experts else config.ffn_size  # where no layer has it
    assert found == replace(config, name="mine", ffn_size=ffn_size, names=found.names)
    assert_same(loaded(folder), draw_weights(config=config), torch.float32)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
def test_shards_ties_and_number_formats(tied: bool, stored: torch.dtype, tmp_path: Path) -> None:
    config = replace(LLAMA, tie_embeddings=tied)
    folder = write_checkpoint(tmp_path, config, sharded=True, dtype=stored)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    expected = draw_weights(config=config)
    rounded = [tensor.to(stored) for tensor in tensors_of(expected)]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        found = loaded(folder, dtype)
        assert (found.head is found.embedding) == tied
        for read, drawn in zip(tensors_of(found), rounded, strict=True):
            assert torch.equal(read, drawn.to(dtype))


def test_a_layer_is_gone_when_the_next_one_is_read(tmp_path: Path) -> None:
    config = replace(LLAMA, layers=4)
    weights = loaded(write_checkpoint(tmp_path, config))
    seen = []
    for layer in weights.layers:
        seen.append(weakref.ref(layer["attention_out"]))
        del layer
        gc.collect()
        assert not any(ref() is not None for ref in seen[:-1])
    assert len(seen) == 4


def test_weights_beyond_float16_are_refused_by_name(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)

    def enlarge(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.1.mlp.down_proj.weight"][3, 5] = 1e5

    edit_tensors(folder / "model.safetensors", enlarge)
    assert tensors_of(loaded(folder, torch.bfloat16))
    with pytest.raises(EngineError, match=r"down_proj\.weight does not fit float16: use bfloat16"):
        tensors_of(loaded(folder, torch.float16))


@torch.inference_mode()
def of_transformers(folder: Path) -> tuple[list[list[int]], torch.Tensor]:
    """Greedy tokens and logits of the folder, with everything recomputed for each token."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids, logits = torch.tensor(PROMPTS), []
    for _ in range(NEW_TOKENS):
        logits.append(model(ids, use_cache=False).logits[:, -1])
        ids = torch.cat([ids, logits[-1].argmax(-1, keepdim=True)], dim=1)
    return ids[:, len(PROMPTS[0]) :].tolist(), torch.stack(logits, 1)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", ["mha", "qwen2-window", "qwen3", "mistral", "mixtral"])
def test_a_folder_answers_as_transformers_does(
    name: str, stored: torch.dtype, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path, MODELS[name], sharded=True, dtype=stored)
    tokens, logits = of_transformers(folder)
    found = find_model(str(folder))
    policies = PolicyConfig(kv_tokens=1024, max_model_len=128)
    load = found.load_weights(found.config)
    run = run_greedy(found.config, policies, PROMPTS, NEW_TOKENS, load_weights=load)
    assert run.tokens == tokens
    assert (torch.stack(run.logits) - logits).abs().max() <= MAX_LOGIT_ERROR
    assert len({token for each in tokens for token in each}) > 24
