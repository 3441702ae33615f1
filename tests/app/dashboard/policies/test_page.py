"""The page Policies: its table and words, its heat map, and the page, also in a browser."""

import time

import pandas as pd
import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.policies.policy_grid import (
    NAME,
    POLICIES,
)
from tests.support.dashboard_app import Browser, page_test


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
    assert at.markdown[0].value.count("requests/s") == 2
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
    user.visit("Frontier")
    user.visit("Policies")
    user.await_heading("Highest rate within the SLO")
    assert user.page.get_by_text("has changed").count() == 0
    user.assert_sound()
