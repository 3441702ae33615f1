"""The page Policies: its table and words, its heat map, and the page, also in a browser."""

import re
import time
from contextlib import suppress

import pandas as pd
import pytest
from playwright.sync_api import TimeoutError as NotLoaded

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.policies.policy_grid import NAME, POLICIES
from tests.support.dashboard_app import Browser, Chromium, ServedDashboard, page_test, user_of


def table(*rows: tuple[str | None, str | None]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[NAME, POLICIES])


def test_the_page_runs_the_table_and_says_who_is_best() -> None:
    at = page_test("policies")
    at.session_state["requests"] = 60
    at.session_state["policies_kept"] = table(("one", "chunked+prefix"), ("two", "static"))
    at.run()
    at.text_input(key="policies_rates").set_value("2, 4")
    at.button(key="policies_run").click().run()
    until_s = time.monotonic() + 30
    while at.session_state["jobs"]["policies"].is_running and time.monotonic() < until_s:
        time.sleep(0.1)
    at.run()
    assert not at.exception
    assert not at.error
    assert at.markdown[0].value.startswith("**Best: ")
    assert at.markdown[1].value.count("At ") == 2
    assert at.dataframe[-1].value["policies"].tolist() == ["one", "two"]
    assert [info.value.startswith("one: Generated prompts have") for info in at.info] == [True]
    at.text_input(key="policies_rates").set_value("2").run()
    assert "has changed" in at.info[0].value


def test_a_wrong_row_is_one_error_that_names_it() -> None:
    at = page_test("policies")
    at.session_state["requests"] = 60
    at.session_state["policies_kept"] = table(("one", "chunked"), ("two", "statik"))
    at.run()
    assert [error.value.startswith("row 2") for error in at.error] == [True]
    assert "policies" not in at.session_state["jobs"]


@pytest.mark.slow
@pytest.mark.browser
def test_the_grid_runs_and_the_table_survives_another_page(user: Browser) -> None:
    user.open("policies?requests=50&policies_rates=4", "Policies")
    user.start("Run the grid")
    user.await_heading("Highest rate within the SLO")
    user.visit("Compare")
    user.visit("Policies")
    user.await_heading("Highest rate within the SLO")
    assert user.page.get_by_text("has changed").count() == 0
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_a_click_on_a_point_loads_its_scenario(user: Browser) -> None:
    user.open("policies?requests=50&policies_rates=3%2C+6", "Policies")
    page = user.page
    user.start("Run the grid")
    user.await_heading("Highest rate within the SLO")
    point = page.locator(".js-plotly-plot .points path").nth(1)
    for _ in range(5):  # a chart that is just drawn anew, as its job ends, loses the click
        user.settle()
        point.click(force=True)
        with suppress(NotLoaded):
            page.wait_for_url("**rate=6**", timeout=15_000)
            break
    user.settle()  # the link has one setting after the other
    assert "rate=6" in page.url
    assert "batching=static" in page.url
    assert page.get_by_text("has changed").count() == 0
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_stop_keeps_what_is_there_and_another_page_does_not_lose_it(
    user: Browser, dashboard: ServedDashboard, chromium: Chromium
) -> None:
    user.open("policies?requests=60000", "Policies")
    page = user.page
    stop = page.get_by_role("button", name="Stop", exact=True)
    user.start("Run the grid")
    stop.wait_for()
    page.get_by_role("link", name="Compare").click()
    user.await_heading("Compare", level=1)
    page.get_by_role("link", name="Policies").click()
    stop.click()
    page.get_by_text(re.compile(r"Stopped: \d+ of 32 simulated")).wait_for()
    with user_of(dashboard, chromium) as other:
        other.open("policies", "Policies")
        assert other.page.get_by_text("Stopped").count() == 0
    user.assert_sound()
