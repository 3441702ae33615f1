"""Runs that are read: their tables, and that they are read anew when changed."""

import json
from pathlib import Path

import pytest
import yaml

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.dashboard.kept_runs.opened_runs import facts, latency_frame, opened
from servetwin.app.words import METRICS
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.records.steady_part import describe_steady
from tests.support.figure_frames import load_test


def test_an_opened_run_has_its_tables(root: Path) -> None:
    (named,), trials = opened(root, ("mine",))
    assert trials == []
    table = latency_frame(named.run).set_index("metric")
    assert set(table["part"]) == {"whole run"}
    assert table.loc["TTFT, ms", "p90"] == pytest.approx(1e3 * named.run.summary()["ttft_s"]["p90"])
    lines = facts(named.run)
    assert "llama-2-7b on a100-80gb with weight-int4" in lines[0]
    assert lines[1] == "30 requests: 30 finished"
    assert "steady part: none; fewer than 50 requests" in lines


def test_the_steady_part_stands_beside_the_whole_run() -> None:
    run = load_test(60)
    summary = run.summary()
    assert describe_steady(summary["steady"]) in facts(run)
    table = latency_frame(run).set_index(["metric", "part"])
    for name in LATENCIES:
        for part, figures in (("whole run", summary), ("steady part", summary["steady"])):
            metric, found = METRICS[name], figures[name]
            assert table.loc[(metric.title, part), "count"] == found["count"]
            assert table.loc[(metric.title, part), "p90"] == pytest.approx(1e3 * found["p90"])
    assert list(table.index)[:2] == [("TTFT, ms", "whole run"), ("TTFT, ms", "steady part")]


def test_a_folder_from_before_steady_parts_still_opens(root: Path) -> None:
    load_test(60).save(root / "old")
    path = root / "old" / "summary.json"
    summary = json.loads(path.read_text())
    del summary["steady"]
    path.write_text(json.dumps(summary))
    (named,), _ = opened(root, ("old",))
    assert set(latency_frame(named.run)["part"]) == {"whole run", "steady part"}


def test_a_run_is_read_again_when_it_has_changed(root: Path) -> None:
    (before,), _ = opened(root, ("mine",))
    assert opened(root, ("mine",))[0][0] is before
    scenario = yaml.safe_load((root / "mine/scenario.yaml").read_text())
    (root / "mine/scenario.yaml").write_text(yaml.safe_dump({**scenario, "seed": 77}))
    (after,), _ = opened(root, ("mine",))
    assert after.run.scenario["seed"] == 77
