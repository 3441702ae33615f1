"""Runs that a timeline shows: in memory and from a folder."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.why.shown_run import busiest_window, from_folder
from servetwin.app.scenario.files.scenario_file import FIRST_SERVER
from tests.support.dashboard_runs import busy_run


def test_a_run_in_memory_and_its_folder_have_the_same_explanations(tmp_path: Path) -> None:
    scenario = {**busy_run().run.scenario, **FIRST_SERVER.settings()}
    replace(busy_run().run, scenario=scenario).save(tmp_path / "kept")
    kept = from_folder(tmp_path / "kept")
    assert kept.explainer.slowest(20) == busy_run().explainer.slowest(20)
    assert kept.kv_tokens == busy_run().kv_tokens == 60_000


def test_the_state_keeps_to_the_window() -> None:
    start_s, end_s = busiest_window(busy_run())
    state = busy_run().state(start_s, end_s)
    assert state["at_s"].between(start_s, end_s).all()
    assert state["running"].max() > 32  # of two replicas
    assert state["kv_usage"].between(0, 1).all()
