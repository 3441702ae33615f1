"""``calibrate --url`` over HTTP, on a simulated server in real time."""

from pathlib import Path

import pytest

from servetwin.sim.step_times.profile import load_profile
from tests.support.command import servetwin

pytest.importorskip("uvicorn")


SETTINGS = {"max_model_len", "batching", "token_budget", "max_seqs", "prefix_cache", "kv_tokens"}


def test_it_writes_what_it_learned_and_what_it_did_not(black_box_url: str, tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    limits = ("--max-minutes", 1.0, "--max-requests", 80, "--rounds", 1)
    done = servetwin("calibrate", "--url", black_box_url, "--out", out, *limits)
    assert done.code == 0, done.err
    profile = load_profile(str(out))
    found = profile.engine["identified"]
    assert {*found["identified"], *found["not identified"]} >= SETTINGS
    assert found["identified"]["max_model_len"] == 200
    assert profile.origin == "measured here"
    assert profile.machine["endpoint"].startswith("127.0.0.1:")
    assert f"profile: {out}" in done.out


def test_an_endpoint_that_is_gone_is_one_line() -> None:
    done = servetwin("calibrate", "--url", "http://127.0.0.1:9")
    assert done.code == 1
    assert "is the server running?" in done.err
    assert len(done.err.splitlines()) == 1
