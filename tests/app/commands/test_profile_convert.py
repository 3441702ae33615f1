"""``profile convert``, and the profiles that were made with it."""

import json
from pathlib import Path

import pytest

from servetwin.sim.step_times.profile import load_profile, shipped_profiles
from tests.support.command import refused, servetwin
from tests.support.layer_bundles import write_bundle
from tests.support.paths import SAMPLE

FROM_TABLES = [name for name in shipped_profiles() if name.endswith("-vllm")]


def test_layer_times_become_a_profile_near_them(tmp_path: Path) -> None:
    layers, out = write_bundle(tmp_path / "layers"), tmp_path / "made.json"
    server = ("--model", "llama-3.1-8b", "--times", f"layers:{layers}")
    done = servetwin("profile", "convert", *server, "--out", out, "--json")
    assert done.code == 0
    found = json.loads(done.out)
    assert found["median_error"] < 0.03
    profile = load_profile(str(out))
    assert (profile.name, profile.origin) == ("made", "measured by others")
    assert "Made GPU" in profile.engine["source"]
    tpot = []
    for served in (server, ("--profile", out)):
        run = servetwin("replay", SAMPLE, *served, "--set", "max_seqs=64", "--json")
        assert run.code == 0
        tpot.append(json.loads(run.out)["tpot_s"]["mean"])
    assert tpot[1] == pytest.approx(tpot[0], rel=0.05)


def test_the_report_has_the_error_on_unseen_batches(tmp_path: Path) -> None:
    done = servetwin(
        "profile", "convert", "--model", "llama-3.1-8b", "--times",
        f"layers:{write_bundle(tmp_path / 'layers')}", "--out", tmp_path / "made.json",
    )  # fmt: skip
    assert "(p90) on 400 unseen points" in done.out
    assert done.out.splitlines()[-1] == f"profile: {tmp_path / 'made.json'}"


def test_what_to_convert_must_be_said(tmp_path: Path) -> None:
    assert "--model: say what to convert" in refused("profile", "convert", "--out", tmp_path / "p")


@pytest.mark.parametrize("name", FROM_TABLES)
def test_shipped_profiles_of_tables_say_whose_they_are(name: str) -> None:
    profile = load_profile(name)
    assert profile.origin == "kernel tables"
    assert "(NVIDIA, Apache-2.0)" in profile.engine["source"]
    assert profile.engine["source"].endswith("no server measured")
    assert profile.engine["change"]
    (fit,) = profile.layouts.values()
    assert (fit.held_out_error or 1) < 0.035
    assert fit.drift > 0.05


def test_a_dozen_are_shipped() -> None:
    assert len(FROM_TABLES) == 12
