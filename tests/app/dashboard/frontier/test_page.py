"""The page Frontier: its grid and conclusion, its figure, and the page, also in a browser."""

import re
import time
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import TimeoutError as NotLoaded

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.frontier.frontier_grid import (
    frontier_points,
)
from servetwin.app.dashboard.scenario.controls import CONTROLS
from tests.support.dashboard_app import Browser, Chromium, ServedDashboard, page_test, user_of


def run_to_the_end(at: Any) -> Any:
    for _ in range(200):
        if not at.session_state["jobs"]["frontier"].is_running:
            return at.run()
        time.sleep(0.1)
    raise AssertionError("the grid did not end")


def test_the_page_runs_a_grid_concludes_and_offers_the_data() -> None:
    at = page_test("frontier")
    at.session_state["requests"] = 60
    at.run()
    assert not at.exception
    assert not at.error
    at.text_input(key="frontier_rate").set_value("2, 4")
    at.text_input(key="frontier_max_seqs").set_value("16")
    at.button[0].click().run()
    run_to_the_end(at)
    assert not at.exception
    assert at.markdown[0].value.startswith("**Best: 16 sequences at 4 requests/s")
    at.number_input(key="ttft_ms").set_value(100.0).run()
    assert "has changed" in at.info[0].value


def test_a_wrong_field_is_one_error_and_no_grid() -> None:
    at = page_test("frontier")
    at.session_state["requests"] = 60
    at.run()
    opened = at.session_state["jobs"]["frontier"]
    at.text_input(key="frontier_rate").set_value("often")
    at.button[0].click().run()
    assert "often" in at.error[0].value
    assert at.session_state["jobs"]["frontier"] is opened, "the grid that was there stays"


def test_the_defaults_are_a_grid() -> None:
    at = page_test("frontier")
    at.session_state["requests"] = 60
    at.run()
    texts = {
        axis: at.text_input(key=f"frontier_{axis}").value
        for axis in ("rate", "max_seqs", "token_budget", "replicas")
    }
    assert len(frontier_points(texts)) > 10
    assert set(texts) <= set(CONTROLS)


def test_an_empty_rate_is_that_of_the_scenario() -> None:
    at = page_test("frontier")
    at.session_state["requests"] = 60
    at.run()
    at.text_input(key="frontier_rate").set_value("")
    at.text_input(key="frontier_max_seqs").set_value("16, 8")
    at.button[0].click().run()
    assert not at.error
    run_to_the_end(at)
    assert not at.exception
    assert "nearest is 16 sequences, with" in at.markdown[0].value
    job = at.session_state["jobs"]["frontier"]
    assert [scene.file.workload.rate_per_s for scene in job.items] == [10.0, 10.0]


@pytest.mark.slow
@pytest.mark.browser
def test_a_click_on_a_point_loads_its_scenario(user: Browser) -> None:
    user.open("frontier?requests=50&frontier_rate=3%2C+6&frontier_max_seqs=7", "Frontier")
    page = user.page
    user.start("Run the grid")
    user.await_heading("At a given speed for a user")
    point = page.locator(".js-plotly-plot .points path").nth(1)
    for _ in range(5):  # a chart that is just drawn anew, as its job ends, loses the click
        user.settle()
        point.click(force=True)
        with suppress(NotLoaded):
            page.wait_for_url("**rate=6**", timeout=15_000)
            break
    user.settle()  # the link has one setting after the other
    assert "rate=6" in page.url
    assert "max_seqs=7" in page.url
    assert page.get_by_text("has changed").count() == 0
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_stop_keeps_what_is_there_and_another_page_does_not_lose_it(
    user: Browser, dashboard: ServedDashboard, chromium: Chromium
) -> None:
    user.open("frontier?requests=60000&frontier_max_seqs=1%2C2%2C3%2C4%2C5", "Frontier")
    page = user.page
    stop = page.get_by_role("button", name="Stop", exact=True)
    user.start("Run the grid")
    stop.wait_for()
    page.get_by_role("link", name="Policies").click()
    user.await_heading("Policies", level=1)
    page.get_by_role("link", name="Frontier").click()
    stop.click()
    page.get_by_text(re.compile(r"Stopped: \d+ of 40 simulated")).wait_for()
    with user_of(dashboard, chromium) as other:
        other.open("frontier", "Frontier")
        assert other.page.get_by_text("Stopped").count() == 0
    user.assert_sound()
