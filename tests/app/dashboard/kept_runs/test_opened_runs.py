"""Runs that are read: their tables, and that they are read anew when changed."""

from pathlib import Path

import pytest
import yaml

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from app.dashboard.kept_runs.opened_runs import facts, latency_frame, opened


def test_an_opened_run_has_its_tables(root: Path) -> None:
    (named,), trials = opened(root, ("mine",))
    assert trials == []
    table = latency_frame(named.run).set_index("metric")
    assert table.loc["TTFT, ms", "p90"] == pytest.approx(1e3 * named.run.summary()["ttft_s"]["p90"])
    lines = facts(named.run)
    assert "llama-2-7b on a100-80gb with weight-int4" in lines[0]
    assert lines[1] == "30 requests: 30 finished"


def test_a_run_is_read_again_when_it_has_changed(root: Path) -> None:
    (before,), _ = opened(root, ("mine",))
    assert opened(root, ("mine",))[0][0] is before
    scenario = yaml.safe_load((root / "mine/scenario.yaml").read_text())
    (root / "mine/scenario.yaml").write_text(yaml.safe_dump({**scenario, "seed": 77}))
    (after,), _ = opened(root, ("mine",))
    assert after.run.scenario["seed"] == 77
