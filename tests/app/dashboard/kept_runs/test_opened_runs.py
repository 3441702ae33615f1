"""Runs that are read: their tables and charts, and that they are read anew when changed."""

from pathlib import Path

import pytest
import yaml

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from app import figures
from app.dashboard.kept_runs.opened_runs import drawn, facts, latency_frame, opened
from sim.records.metrics import SLO


def test_an_opened_run_has_its_tables_and_charts(root: Path) -> None:
    (named,), trials = opened(root, ("mine",))
    assert trials == []
    titles = [title for title, figure in drawn(named, SLO(ttft_s=0.5)) if figures.alt_text(figure)]
    assert titles[:2] == ["TTFT", "TPOT"]
    assert {"The server over time", "KV memory, mean over the run", "Requests"} <= set(titles)
    table = latency_frame(named.run).set_index("metric")
    assert table.loc["TTFT, ms", "p90"] == pytest.approx(1e3 * named.run.summary()["ttft_s"]["p90"])
    lines = facts(named.run)
    assert "llama-2-7b on a100-80gb with weight-int4" in lines[0]
    assert lines[1] == "30 requests: 30 finished"
    (measured,), _ = opened(root, ("measured",))
    assert "Chunk gaps (ITL)" in [title for title, _ in drawn(measured, SLO())]


def test_a_run_is_read_again_when_it_has_changed(root: Path) -> None:
    (before,), _ = opened(root, ("mine",))
    assert opened(root, ("mine",))[0][0] is before
    scenario = yaml.safe_load((root / "mine/scenario.yaml").read_text())
    (root / "mine/scenario.yaml").write_text(yaml.safe_dump({**scenario, "seed": 77}))
    (after,), _ = opened(root, ("mine",))
    assert after.run.scenario["seed"] == 77
