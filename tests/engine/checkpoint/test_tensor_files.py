"""Folders whose files or tensors are wrong are refused by name, before anything is loaded."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from servetwin.engine.checkpoint.find_model import find_model
from servetwin.engine.checkpoint.tensor_files import INDEX_FILE, SINGLE_FILE, stored_tensors
from servetwin.workloads.errors import EngineError
from tests.support.checkpoints import edit_json, edit_tensors, write_checkpoint

Break = Callable[[Path], object]
Tensors = dict[str, torch.Tensor]
DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("sharded"), sharded=True)


def broken(folder: Path, tmp_path: Path, change: Break) -> str:
    """The error of a copy of ``folder`` after a change."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    change(tmp_path)
    found = find_model(str(tmp_path))
    with pytest.raises(EngineError) as refused:
        found.stored(found.config)
    message = str(refused.value)
    assert message.startswith(str(tmp_path))
    assert "\n" not in message
    return message.removeprefix(str(tmp_path))


def tensors(edit: Callable[[Tensors], object]) -> Break:
    return lambda folder: edit_tensors(folder / SINGLE_FILE, lambda found: (edit(found), None)[1])


def put(name: str, tensor: torch.Tensor) -> Break:
    return tensors(lambda found: found.update({name: tensor}))


def cut(file: str, size: int) -> Break:
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:size])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            tensors(lambda found: found.pop(DOWN)),
            f": tensor {DOWN} is missing",
        ),
        (
            tensors(lambda found: found.pop("lm_head.weight")),
            ": tensor lm_head.weight is missing (and tie_word_embeddings is not true)",
        ),
        (
            put(DOWN, torch.zeros(128, 383)),
            f"/model.safetensors: tensor {DOWN} is [128, 383], and config.json makes it [128, 384]",
        ),
        (
            put(DOWN, torch.zeros(128, 384, dtype=torch.int8)),
            f"/model.safetensors: tensor {DOWN} is of I8; the engine reads F32, BF16, F16",
        ),
        (
            put("model.layers.0.self_attn.q_proj.bias", torch.zeros(128)),
            ": tensor model.layers.0.self_attn.q_proj.bias is not of the model",
        ),
        (
            put("model.layers.2.input_layernorm.weight", torch.zeros(128)),
            ": tensor model.layers.2.input_layernorm.weight is not of the model",
        ),
        (
            lambda folder: edit_json(folder / "config.json", num_hidden_layers=3),
            ": tensors model.layers.2.input_layernorm.weight, model.layers.2.self_attn.q_proj"
            ".weight, model.layers.2.self_attn.k_proj.weight and 6 more are missing",
        ),
        (
            lambda folder: (folder / SINGLE_FILE).unlink(),
            f": has neither {SINGLE_FILE} nor {INDEX_FILE}",
        ),
        (
            lambda folder: (folder / SINGLE_FILE).rename(folder / "pytorch_model.bin"),
            f": has neither {SINGLE_FILE} nor {INDEX_FILE}; pytorch_model.bin is not read: "
            "convert it to safetensors",
        ),
        (cut(SINGLE_FILE, 5), "/model.safetensors: is no safetensors file"),
        (cut(SINGLE_FILE, 100), "/model.safetensors: is truncated: it ends within its header"),
        (cut(SINGLE_FILE, 100_000), "/model.safetensors: is truncated: "),
        (
            lambda folder: (folder / SINGLE_FILE).write_bytes(b"\x02" + bytes(7) + b"[]"),
            "/model.safetensors: is no safetensors file: its header makes no sense",
        ),
        (
            lambda folder: (folder / SINGLE_FILE).write_bytes(b"version https://git-lfs"),
            "/model.safetensors: is no safetensors file",
        ),
    ],
)
def test_a_single_file_that_is_wrong(
    whole: Path, tmp_path: Path, change: Break, message: str
) -> None:
    assert broken(whole, tmp_path, change).startswith(message)


def test_an_index_that_is_wrong(sharded: Path, tmp_path: Path) -> None:
    shards = sorted(path.name for path in sharded.glob("model-*"))
    index = json.loads((sharded / INDEX_FILE).read_text())["weight_map"]
    assert len(shards) > 2

    def missing(folder: Path) -> None:
        (folder / shards[1]).unlink()

    assert broken(sharded, tmp_path, missing) == (
        f"/{INDEX_FILE}: weight_map names {shards[1]}, and there is no such file"
    )
    mapped = index | {DOWN: next(shard for shard in shards if shard != index[DOWN])}
    said = broken(
        sharded, tmp_path, lambda folder: edit_json(folder / INDEX_FILE, weight_map=mapped)
    )
    assert said == f"/{mapped[DOWN]}: has no {DOWN}, which {INDEX_FILE} says it has"
    for wrong, message in (
        (..., f"/{INDEX_FILE}: weight_map is missing"),
        ([], f"/{INDEX_FILE}: weight_map must be an object (got [])"),
        ({DOWN: "../other"}, f"/{INDEX_FILE}: weight_map: {DOWN} must name a file of the folder"),
    ):
        said = broken(
            sharded,
            tmp_path,
            lambda folder, wrong=wrong: edit_json(folder / INDEX_FILE, weight_map=wrong),  # type: ignore[misc]
        )
        assert said == message


def test_harmless_tensors_are_left_alone(whole: Path, tmp_path: Path) -> None:
    for file in whole.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_tensors(tmp_path / SINGLE_FILE, lambda found: found.update({name: torch.zeros(16)}))
    found = find_model(str(tmp_path))
    assert name in found.stored(found.config)


def test_a_head_beside_tied_embeddings_is_left_alone(whole: Path, tmp_path: Path) -> None:
    for file in whole.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    edit_json(tmp_path / "config.json", tie_word_embeddings=True)
    found = find_model(str(tmp_path))
    assert "lm_head.weight" in found.stored(found.config)


def test_the_tensors_of_a_folder_are_found(sharded: Path, whole: Path) -> None:
    assert {name: stored.shape for name, stored in stored_tensors(sharded).items()} == {
        name: stored.shape for name, stored in stored_tensors(whole).items()
    }
