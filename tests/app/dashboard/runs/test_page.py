"""The page Runs: what lies in the folder, what may be done with it, and what may not."""

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import patch
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from app import figures
from app.dashboard.scenario import allowed_choices as offers
from app.dashboard.kept_runs import folder as runs_folder
from app.dashboard.kept_runs.folder import child, delete, new_child, zip_problem, zipped
from app.dashboard.runs.listing import listed_runs, runs_table
from app.dashboard.kept_runs.opened_runs import facts, latency_frame, opened
from app.dashboard.kept_runs.saved_scenario import FILE, rebuilt, save_run
from app.dashboard.simulations import SimulatedScenario
from app.scenario.dashboard_options import Additions
from app.scenario.scenario_file import SAMPLE, ScenarioFile, parse_scenario
from tests.support.dashboard_runs import QUANTISED, quantised, simulated_scenario
from sim.records.metrics import SLO
from sim.experiments.predict import run_once
from sim.records.run import RunError, load_run
from tests.support.dashboard_app import Browser, page_test, expect
from tests.support.figure_frames import load_test
from workloads.errors import ServetwinError
from workloads.sample import sample_trace





@pytest.fixture
def at(root: Path) -> Iterator[Any]:
    """The page on that folder."""
    with patch.object(offers, "additions", lambda: replace(Additions(), runs=root)):
        test = page_test("runs")
        test.session_state["requests"] = 40
        yield test.run()


def press(at: Any, label: str) -> None:
    next(button for button in at.button if button.label == label).click().run()
    assert not at.exception


def test_the_scenario_at_the_side_is_saved_and_opened(at: Any, root: Path) -> None:
    assert at.title[0].value == "Runs"
    at.text_input(key="runs_name").set_value("new-one").run()
    press(at, "Simulate and save")
    assert at.success[0].value == "saved as new\\-one" or "new-one" in at.success[0].value
    assert at.session_state["runs_open"] == "new-one"
    assert len(load_run(root / "new-one").requests) == 40
    press(at, "Simulate and save")
    assert "already" in at.error[0].value


def test_without_runs_an_example_is_drawn_that_says_it_is_one(tmp_path: Path) -> None:
    with patch.object(offers, "additions", lambda: replace(Additions(), runs=tmp_path)):
        at = page_test("runs")
        at.session_state["requests"] = 40
        at.run()
        assert not at.exception
        assert "No runs yet" in at.info[0].value
        assert at.subheader[0].value.startswith("Example: a load test")
        assert len(at.get("plotly_chart")) > 4
        assert not any(button.label == "Delete for good" for button in at.button)
        at.text_input(key="runs_name").set_value("mine").run()
        press(at, "Simulate and save")
        assert not any("Example" in header.value for header in at.subheader)


def test_a_run_is_deleted_after_a_second_press(at: Any, root: Path) -> None:
    at.selectbox(key="runs_open").set_value("measured").run()
    press(at, "Delete for good")
    assert not (root / "measured").exists()
    assert "measured is deleted" in at.success[0].value
    assert at.session_state["runs_open"] is None


@pytest.mark.parametrize(
    ("name", "said"), [("broken", "not a readable run folder"), ("link", "a link")]
)
def test_a_broken_run_is_one_line(at: Any, name: str, said: str) -> None:
    at.selectbox(key="runs_open").set_value(name).run()
    assert not at.exception
    assert said in at.error[0].value.replace("\\", "")


def test_a_run_becomes_the_scenario_at_the_side(at: Any) -> None:
    at.selectbox(key="runs_open").set_value("mine").run()
    press(at, "Open as scenario")
    assert at.session_state["model"] == "llama-2-7b"
    assert at.session_state["max_seqs"] == 8
    assert at.session_state["rate"] == 20


def test_a_folder_of_runs_offers_each_of_them(at: Any) -> None:
    at.selectbox(key="runs_open").set_value("group").run()
    assert at.selectbox(key="runs_in_group").options == ["group/one", "group/two"]
    assert "Cannot be opened as a scenario" in "".join(c.value for c in at.caption)


@pytest.mark.browser
def test_saved_downloaded_reported_and_deleted_in_a_browser(user: Browser) -> None:
    page = user.page
    user.open("runs?requests=50", "Runs")
    page.get_by_text("Save the scenario at the side as a run").click()
    user.fill("Name of the run", "mine")
    user.press("Simulate and save")
    expect(page.get_by_text("saved as mine")).to_be_visible()
    page.wait_for_url("**runs_open=mine**")
    assert downloaded(user, "Folder as zip")[:2] == b"PK"
    assert downloaded(user, "Report as HTML").startswith(b"<!DOCTYPE html>")
    page.get_by_role("button", name="Delete ...").click()
    user.press("Delete for good")
    expect(page.get_by_text("mine is deleted")).to_be_visible()
    assert list(user.runs.iterdir()) == []
    user.assert_sound()


def downloaded(user: Browser, label: str) -> bytes:
    user.settle()
    with user.page.expect_download(timeout=60_000) as found:
        user.page.get_by_role("button", name=label).click()
    return Path(found.value.path()).read_bytes()
