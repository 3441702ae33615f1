"""The kept runs of the page Measure: what may be done with them, and what may not."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.dashboard.kept_runs.folder import zipped
from servetwin.app.dashboard.scenario import allowed_choices as offers
from servetwin.app.reports.explanation import verdict
from servetwin.app.scenario.options.common import Additions
from servetwin.sim.explain.explain import Explainer
from servetwin.sim.records.run import load_run
from servetwin.sim.step_times.profile import load_profile
from tests.support.dashboard_app import Browser, expect, page_test
from tests.support.report_runs import simulated


@pytest.fixture
def at(root: Path) -> Iterator[Any]:
    """The page on that folder."""
    with patch.object(offers, "additions", lambda: replace(Additions(), runs=root)):
        test = page_test("measure")
        test.session_state["requests"] = 40
        yield test.run()


def press(at: Any, label: str) -> None:
    next(button for button in at.button if button.label == label).click().run()
    assert not at.exception


def test_the_scenario_at_the_side_is_saved_and_opened(at: Any, root: Path) -> None:
    assert at.title[0].value == "Measure"
    at.text_input(key="measure_name").set_value("new-one").run()
    press(at, "Simulate and save")
    assert at.success[0].value == "saved as new\\-one" or "new-one" in at.success[0].value
    assert at.session_state["measure_open"] == "new-one"
    assert len(load_run(root / "new-one").requests) == 40
    press(at, "Simulate and save")
    assert "already" in at.error[0].value


def test_without_runs_an_example_is_drawn_that_says_it_is_one(tmp_path: Path) -> None:
    with patch.object(offers, "additions", lambda: replace(Additions(), runs=tmp_path)):
        at = page_test("measure")
        at.session_state["requests"] = 40
        at.run()
        assert not at.exception
        assert "No runs yet" in at.info[0].value
        assert at.subheader[-1].value.startswith("Example: a load test")
        assert len(at.get("plotly_chart")) > 4
        assert not any(button.label == "Delete for good" for button in at.button)
        at.text_input(key="measure_name").set_value("mine").run()
        press(at, "Simulate and save")
        assert not any("Example" in header.value for header in at.subheader)


def test_a_run_is_deleted_after_a_second_press(at: Any, root: Path) -> None:
    at.selectbox(key="measure_open").set_value("measured").run()
    press(at, "Delete for good")
    assert not (root / "measured").exists()
    assert "measured is deleted" in at.success[0].value
    assert at.session_state["measure_open"] is None


@pytest.mark.parametrize(
    ("name", "said"), [("broken", "not a readable run folder"), ("link", "a link")]
)
def test_a_broken_run_is_one_line(at: Any, name: str, said: str) -> None:
    at.selectbox(key="measure_open").set_value(name).run()
    assert not at.exception
    assert said in at.error[0].value.replace("\\", "")


def test_a_run_becomes_the_scenario_at_the_side(at: Any) -> None:
    at.selectbox(key="measure_open").set_value("mine").run()
    press(at, "Open as scenario")
    assert at.session_state["model"] == "llama-2-7b"
    assert at.session_state["max_seqs"] == 8
    assert at.session_state["rate"] == 20


def test_a_folder_of_runs_offers_each_of_them(at: Any) -> None:
    at.selectbox(key="measure_open").set_value("group").run()
    assert at.selectbox(key="measure_in_group").options == ["group/one", "group/two"]
    assert "Cannot be opened as a scenario" in "".join(c.value for c in at.caption)


@pytest.mark.slow
@pytest.mark.browser
def test_saved_downloaded_reported_and_deleted_in_a_browser(user: Browser) -> None:
    page = user.page
    user.open("measure?requests=50", "Measure")
    page.get_by_text("Save, receive, compare").click()
    user.fill("Save the scenario at the side as", "mine")
    user.press("Simulate and save")
    expect(page.get_by_text("saved as mine")).to_be_visible()
    page.wait_for_url("**measure_open=mine**")
    assert downloaded(user, "Folder as zip")[:2] == b"PK"
    assert downloaded(user, "Report as HTML").startswith(b"<!DOCTYPE html>")
    page.get_by_role("button", name="Delete ...").click()
    user.press("Delete for good")
    expect(page.get_by_text("mine is deleted")).to_be_visible()
    assert list(user.runs.iterdir()) == []
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_from_the_folder_of_a_colleague_to_why_a_request_was_slow(
    user: Browser, tmp_path: Path
) -> None:
    """The colleague used a profile and a trace that lie on another machine."""
    profile = tmp_path / "ann" / "profile.json"
    profile.parent.mkdir()
    load_profile("base-cpu").save(profile)
    folder = simulated(tmp_path / "ann" / "slow-evening", "--profile", profile, "--max-seqs", "2")
    profile.unlink()
    sent = zipped(folder.parent, folder.name)
    explainer = Explainer(load_run(folder))
    slowest = explainer.slowest(1)[0]
    assert slowest.waited_s

    page = user.page
    user.open("measure", "Measure")
    page.get_by_text("Save, receive, compare").click()
    field = page.get_by_test_id("stMain").locator("input[type=file]")
    file: Any = {"name": "from ann.zip", "mimeType": "application/zip", "buffer": sent}
    user.act(lambda: field.set_input_files(file))
    expect(page.get_by_text("kept as slow-evening")).to_be_visible()
    user.await_heading("slow-evening")
    user.act(page.get_by_role("link", name="Why was a request slow?").click)
    user.await_heading("Why", level=1)
    user.fill("Request to explain", slowest.request_id)
    user.await_heading(f"Request {slowest.request_id}")
    answer = verdict(slowest)
    expect(page.get_by_text(answer[:1].upper() + answer[1:]).first).to_be_visible()
    page.wait_for_url("**why_run=slow-evening**")
    assert "/ann/" not in page.content()
    user.assert_sound()


def downloaded(user: Browser, label: str) -> bytes:
    user.settle()
    with user.page.expect_download(timeout=60_000) as found:
        user.page.get_by_role("button", name=label).click()
    return Path(found.value.path()).read_bytes()
