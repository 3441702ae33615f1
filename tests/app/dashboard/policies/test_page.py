"""The page Policies: its table and words, its heat map, and the page, also in a browser."""

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from app import figures
from app.dashboard.policies.policy_grid import (
    DEFAULT_TABLE,
    NAME,
    POLICIES,
    best_per_rate,
    highest_rates,
    named_scenarios,
    policy_points,
    with_policies,
)
from app.scenario.scenario_file import ScenarioError, ScenarioFile
from tests.support.dashboard_app import browser, page_test, served_dashboard
from workloads.errors import ServetwinError

BASE = ScenarioFile(policies={"max_seqs": 8})


def table(*rows: tuple[str | None, str | None]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[NAME, POLICIES])


@pytest.mark.parametrize(
    ("text", "policies", "cluster"),
    [
        ("", {}, {}),
        ("chunked+paged+prefix", {"batching": "chunked", "kv": "paged", "prefix_cache": True}, {}),
        ("chunked  max_seqs=64", {"batching": "chunked", "max_seqs": 64}, {}),
        ("replicas=2 router=random", {}, {"replicas": 2, "router": "random"}),
    ],
)
def test_policies_lie_over_the_scenario(
    text: str, policies: dict[str, Any], cluster: dict[str, Any]
) -> None:
    assert with_policies(BASE, text) == BASE.over(policies, cluster)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chunkd", "did you mean 'chunked'"),
        ("max_seqs=many", "'many' is not a whole number"),
        ("batching=mine.py:Mine", "not offered here"),
        ("kv=/etc/passwd:X", "not offered here"),
        ("router=mine.py:Mine", "not offered here"),
        ("max_seqs=0", "max_seqs"),
    ],
)
def test_impossible_policies_say_why_without_naming_an_option(text: str, message: str) -> None:
    with pytest.raises(ServetwinError, match=re.escape(message)) as raised:
        with_policies(BASE, text)
    assert "--" not in str(raised.value)


def test_rows_are_named_and_empty_ones_left_out() -> None:
    rows = table(("a", "static"), (None, None), (None, "chunked"), ("b", ""))
    found = named_scenarios(BASE, rows)
    assert list(found) == ["a", "chunked", "b"]
    assert found["b"] == BASE
    with pytest.raises(ScenarioError, match=r"row 2 \(a\): another row has this name"):
        named_scenarios(BASE, table(("a", "static"), ("a", "chunked")))
    with pytest.raises(ScenarioError, match=r"row 2 \(b\): .*'statik'"):
        named_scenarios(BASE, table(("a", "static"), ("b", "statik")))


def test_points_are_rows_times_rates_with_their_scenarios() -> None:
    points, files = policy_points(BASE, DEFAULT_TABLE, "8, 4")
    assert points[:3] == [
        {NAME: "static", "rate": 4.0}, {NAME: "static", "rate": 8.0},
        {NAME: "continuous", "rate": 4.0},
    ]  # fmt: skip
    assert [file.workload.rate_per_s for file in files[:3]] == [4.0, 8.0, 4.0]
    with pytest.raises(ScenarioError, match="no point"):
        policy_points(BASE, table(), "8")
    with pytest.raises(ScenarioError, match="no point"):
        policy_points(BASE, DEFAULT_TABLE, "")


def grid(*attained: tuple[float, ...]) -> pd.DataFrame:
    """Policies a, b, c ... at rates 1, 2, ..."""
    return pd.DataFrame(
        [
            {NAME: "abc"[row], "rate": float(rate), "slo_attainment": share}
            for row, shares in enumerate(attained)
            for rate, share in enumerate(shares, 1)
        ]
    )


def test_words_name_the_best_per_rate() -> None:
    found = grid((1.0, 0.5, np.nan), (1.0, 0.9, np.nan), (0.999, 0.2, 0.1))
    assert best_per_rate(found, 0.99) == [
        "At 1 requests/s: a and b with 100.0 %.",
        "At 2 requests/s: b with 90.0 %, less than 99 %.",
        "At 3 requests/s: c with 10.0 %, less than 99 %.",
    ]


def test_how_far_each_goes_ends_at_the_first_miss() -> None:
    found = grid((1.0, 0.5, 1.0), (0.9, 1.0, 1.0), (1.0, 1.0, np.nan))
    rates = highest_rates(found, 0.99).iloc[:, 1]
    assert rates.fillna(0).tolist() == [1.0, 0.0, 2.0]


def test_the_heat_map_has_categories_and_its_values_in_words() -> None:
    shares = pd.DataFrame([[1.0, 0.5], [np.nan, 0.25]], ["<b>a", "b"], [2.0, 16.0])
    figure = figures.heat_map(shares, "requests per second", "SLO attainment, %")
    (cells,) = figure.data
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "category"
    assert (cells.x, cells.y) == (("2", "16"), ("&lt;b>a", "b"))
    assert [list(row) for row in cells.text] == [["100.0", "50.0"], ["", "25.0"]]
    assert (cells.zmin, cells.zmax) == (0, 100)
    assert "25.0 at 16" in figures.alt_text(figure)


def test_the_page_runs_the_table_and_says_who_is_best() -> None:
    at = page_test("policies")
    at.session_state["requests"] = 60
    at.session_state["policies_kept"] = table(("one", "chunked"), ("two", "static"))
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
    at.text_input(key="policies_rates").set_value("2").run()
    assert "have changed" in at.info[0].value


def test_a_wrong_row_is_one_error_that_names_it() -> None:
    at = page_test("policies")
    at.session_state["requests"] = 60
    at.session_state["policies_kept"] = table(("one", "chunked"), ("two", "statik"))
    at.run()
    at.button(key="policies_run").click().run()
    assert [error.value.startswith("row 2") for error in at.error] == [True]
    assert "policies" not in at.session_state["jobs"]


@pytest.mark.browser
def test_the_grid_runs_and_the_table_survives_another_page(tmp_path: Path) -> None:
    with served_dashboard(tmp_path) as url, browser(url) as chromium:
        chromium.open("policies?requests=100&policies_rates=4", "Policies")
        page = chromium.page
        page.get_by_role("button", name="Run the grid").click()
        page.get_by_role("heading", name="How far each one goes").wait_for(timeout=60_000)
        page.get_by_role("link", name="Frontier").click()
        page.get_by_role("heading", name="Frontier", level=1).wait_for(timeout=60_000)
        page.get_by_role("link", name="Policies").click()
        page.get_by_role("heading", name="How far each one goes").wait_for(timeout=60_000)
        assert page.get_by_text("have changed").count() == 0
        chromium.assert_sound()
