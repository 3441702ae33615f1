"""A preset by its name, a checkpoint by its folder, and where outputs end."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servetwin.engine.checkpoint.find_model import find_model
from servetwin.engine.models.model_config import PRESETS
from servetwin.engine.sampling.sampling_params import EOS_ID
from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from servetwin.workloads.errors import EngineError
from tests.support.checkpoints import edit_json, write_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "mine")


def test_a_preset_has_random_weights_and_bytes_as_tokens() -> None:
    found = find_model("tiny")
    assert (found.config, found.folder) == (PRESETS["tiny"], None)
    assert found.tokenizer() == ByteTokenizer()
    assert found.eos_ids == (EOS_ID,)
    assert found.load_weights(found.config) is None
    assert found.stored(found.config) == {}


def test_a_folder_named_as_a_preset_is_taken_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    assert find_model("tiny").folder is None
    assert find_model("./tiny").config.name == "tiny"
    assert find_model("./tiny").folder == Path("tiny")


@pytest.mark.parametrize(
    ("generation", "config", "eos_ids"),
    [
        (2, 3, (2,)),
        ([2, 5], 3, (2, 5)),
        (..., 3, (3,)),
        (None, [3, 4], (3, 4)),
        (None, None, ()),
    ],
)
def test_outputs_end_as_the_files_say(
    folder: Path, generation: Any, config: Any, eos_ids: tuple[int, ...]
) -> None:
    edit_json(folder / "generation_config.json", eos_token_id=generation)
    edit_json(folder / "config.json", eos_token_id=config)
    found = find_model(str(folder))
    assert found.eos_ids == found.tokenizer().eos_ids == eos_ids


@pytest.mark.parametrize("eos", [512, -1, "</s>", True, [1, 512]])
def test_an_end_that_is_no_token_is_refused(folder: Path, eos: Any) -> None:
    edit_json(folder / "generation_config.json", eos_token_id=eos)
    with pytest.raises(EngineError, match=r"generation_config\.json: eos_token_id .* is no token"):
        find_model(str(folder))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tinny", "unknown model 'tinny'; did you mean 'tiny'?"),
        ("./nowhere", "model ./nowhere: no such folder; give one with a checkpoint, or a preset ("),
        ("meta-llama/Llama-3.2-1B", "model meta-llama/Llama-3.2-1B: no such folder; give one"),
    ],
)
def test_a_model_that_is_not_there(name: str, message: str) -> None:
    with pytest.raises(EngineError) as refused:
        find_model(name)
    assert str(refused.value).startswith(message)


def test_a_technique_may_change_what_weights_do_not_know(folder: Path) -> None:
    found = find_model(str(folder))
    windowed = replace(found.config, windows=(16, None))
    assert found.stored(windowed) == found.stored(found.config)
    fewer = replace(found.config, name="mine with 1 kv head", kv_heads=1)
    with pytest.raises(EngineError, match="a technique changes its shape, and a checkpoint"):
        found.stored(fewer)
