"""Runs that are read: their tables, and that they are read anew when changed."""

import json
from pathlib import Path

import pytest
import yaml

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.dashboard.kept_runs.opened_runs import opened
from servetwin.app.figures.canvas import looks
from servetwin.app.reports.html.facts import facts
from servetwin.app.reports.html.tables import latency_table
from servetwin.app.reports.report_folders import NamedRun
from servetwin.app.words import METRICS, number
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.records.run import Run
from servetwin.sim.records.steady_part import describe_steady
from tests.support.figure_frames import load_test


def latencies(run: Run) -> dict[tuple[str, str], list[str]]:
    """Count, mean, percentiles and maximum by metric and part of the run."""
    rows = latency_table([NamedRun("mine", run)], looks(["mine"])).rows
    return {(str(row[0]), str(row[2])): list(map(str, row[3:])) for row in rows}


def test_an_opened_run_has_its_tables(root: Path) -> None:
    (named,), trials = opened(root, ("mine",))
    assert trials == []
    table = latencies(named.run)
    assert {part for _, part in table} == {"whole run"}
    p90 = number(named.run.summary()["ttft_s"]["p90"], 1e3)
    assert table["TTFT, ms", "whole run"][3] == p90
    lines = list(map(str, facts(named.run)))
    assert "llama-2-7b on a100-80gb with weight-int4" in lines[0]
    assert lines[1] == "30 requests: 30 finished"
    assert "steady part: none; fewer than 50 requests" in lines


def test_the_steady_part_stands_beside_the_whole_run() -> None:
    run = load_test(60)
    summary = run.summary()
    assert describe_steady(summary["steady"]) in facts(run)
    table = latencies(run)
    for name in LATENCIES:
        for part, figures in (("whole run", summary), ("steady part", summary["steady"])):
            row, found = table[METRICS[name].title, part], figures[name]
            assert row[0] == str(found["count"])
            assert row[3] == number(found["p90"], 1e3)
    assert list(table)[:2] == [("TTFT, ms", "whole run"), ("TTFT, ms", "steady part")]


def test_a_folder_from_before_steady_parts_still_opens(root: Path) -> None:
    load_test(60).save(root / "old")
    path = root / "old" / "summary.json"
    summary = json.loads(path.read_text())
    del summary["steady"]
    path.write_text(json.dumps(summary))
    (named,), _ = opened(root, ("old",))
    assert {part for _, part in latencies(named.run)} == {"whole run", "steady part"}


def test_a_run_is_read_again_when_it_has_changed(root: Path) -> None:
    (before,), _ = opened(root, ("mine",))
    assert opened(root, ("mine",))[0][0] is before
    scenario = yaml.safe_load((root / "mine/scenario.yaml").read_text())
    (root / "mine/scenario.yaml").write_text(yaml.safe_dump({**scenario, "seed": 77}))
    (after,), _ = opened(root, ("mine",))
    assert after.run.scenario["seed"] == 77
