"""Which engine the options start, from every command, and checkpoints that it cannot."""

from pathlib import Path

import pytest

from servetwin.app.scenario.options.engine import EngineChoice
from servetwin.engine.drafting.drafts import Drafts
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from tests.support.checkpoints import edit_json, write_checkpoint
from tests.support.command import refused

pytest.importorskip("torch")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "mine")


def test_contexts_are_no_longer_than_the_model(folder: Path) -> None:
    assert EngineChoice("tiny").policies() == PolicyConfig()
    edit_json(folder / "config.json", max_position_embeddings=300)
    assert EngineChoice(str(folder)).policies() == PolicyConfig(max_model_len=300)


@pytest.mark.parametrize("command", ["serve", "calibrate", "verify"])
def test_a_checkpoint_that_cannot_be_served_is_one_line(folder: Path, command: str) -> None:
    out = ["--out", str(folder / "out.json")] if command == "calibrate" else []
    edit_json(folder / "config.json", hidden_act="gelu")
    said = refused(command, "--model", str(folder), *out)
    assert said.startswith(f'servetwin: {folder}/config.json: hidden_act "gelu" is not supported')
    said = refused(command, "--model", f"{folder}/nowhere", *out)
    assert said.startswith(f"servetwin: model {folder}/nowhere: no such folder")


def test_weights_that_are_cut_short_are_found_before_a_process_starts(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:9000])
    assert refused("serve", "--model", str(folder)).startswith(
        f"servetwin: {weights}: is truncated"
    )


def test_a_technique_that_needs_other_weights_is_refused(folder: Path) -> None:
    said = refused("serve", "--model", str(folder), "--technique", "multi-query")
    assert "a technique changes its shape, and a checkpoint has no weights of another" in said


def test_n_gram_drafts_replace_the_decodes_and_leave_prompts_their_budget() -> None:
    options = EngineChoice("tiny", n_gram_drafts=3).options(PolicyConfig(max_seqs=8))
    assert options.computation.drafts == Drafts("n-gram", (1, 1, 1))
    assert options.policies == PolicyConfig(max_seqs=8, draft_rows=3, token_budget=256 + 8 * 3)
    plain = EngineChoice("tiny").options(PolicyConfig())
    assert (plain.computation.drafts, plain.policies) == (Drafts(), PolicyConfig())


def test_n_gram_drafts_under_another_scheduler_are_refused() -> None:
    with pytest.raises(EngineError, match=r"^--n-gram-drafts 2: draft_rows: 2 would change"):
        EngineChoice("tiny", n_gram_drafts=2).options(PolicyConfig("static"))
