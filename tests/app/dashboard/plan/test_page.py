"""The page Plan: its question, its answer while it is found, and the page in a browser."""

import re
import time
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from playwright.sync_api import TimeoutError as NotLoaded

from tests.support.dashboard_app import Browser, expect, page_test


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servetwin.app.dashboard.plan.page.REPLICATIONS", 3)


def to_the_end(at: Any) -> Any:
    for _ in range(1000):
        at.run()
        jobs = at.session_state["jobs"]
        names = ("plan", "plan_draws", "plan_loads")
        if all(name in jobs and not jobs[name].is_running for name in names):
            return at.run()
        time.sleep(0.1)
    raise AssertionError("the search did not end")


def opened(**state: Any) -> Any:
    at = page_test("plan")
    for name, value in {"requests": 200, "plan_what": "GPUs", **state}.items():
        at.session_state[name] = value
    return at.run()


def test_the_page_opens_with_an_answer_in_one_sentence_and_a_table() -> None:
    at = to_the_end(opened(plan_rate=140.0))
    assert not at.exception
    assert not at.error
    said = at.subheader[0].value
    assert re.match(
        r"\d+ H100s? holds? TTFT 500 ms, TPOT 50 ms for 99 % of the requests for these", said
    )
    assert any("3 resampled traffic traces" in one.value for one in at.markdown)
    (row,) = at.dataframe[0].value.to_dict("records")
    assert row["GPUs"] == said.split()[0]
    assert any(one.value.startswith("**Best") for one in at.markdown), "the frontier"
    before = at.session_state["jobs"]["plan_draws"]
    at.run()
    assert at.session_state["jobs"]["plan_draws"] is before, "nothing begins anew"


def test_policies_are_compared_and_the_one_that_costs_least_comes_first() -> None:
    at = to_the_end(opened(plan_rate=20.0, compared=["static+contiguous"], plan_price="h100=2"))
    assert re.match(r"this scenario\\: \d+ H100s? holds? TTFT", at.subheader[0].value)
    first, second = at.dataframe[0].value.to_dict("records")
    assert (first["candidate"], second["candidate"]) == ("this scenario", "static+contiguous")
    assert float(first["cost per hour"]) == 2 * int(first["GPUs"])


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"plan_price": "cheap"}, "no price"),
        ({"ttft_ms": None, "tpot_ms": None}, "no limit"),
        ({"compared": ["statik"]}, "statik"),
        ({"plan_what": "users", "plan_think": "long"}, "long"),
        ({"requests": 40}, "40 requests cannot tell what 99"),
    ],
)
def test_bad_input_is_one_error_and_no_answer(state: dict[str, Any], said: str) -> None:
    at = opened(**state)
    for _ in range(100):
        if at.error:
            break
        time.sleep(0.1)
        at.run()
    assert not at.exception
    assert said in at.error[0].value.replace("\\", "")


def test_the_question_is_for_the_load_at_the_side_unless_the_page_gives_one() -> None:
    at = page_test("plan")
    at.session_state["plan_what"] = "GPUs"
    assert at.run().session_state["jobs"]["plan"].note.base.workload.rate_per_s == 10.0
    at.number_input(key="plan_rate").set_value(20.0).run()
    assert at.session_state["jobs"]["plan"].note.base.workload.rate_per_s == 20.0


@pytest.mark.slow
@pytest.mark.browser
def test_from_the_page_to_the_number_of_gpus_and_of_users(user: Browser) -> None:
    """Of a server with few places, which a few users fill: the search is short."""
    user.open("plan?plan_what=GPUs&requests=200&max_seqs=4&plan_rate=10", "Plan")
    user.await_heading("H100s hold TTFT 500 ms")
    page = user.page
    expect(page.get_by_text(re.compile(r"\d+ resampled traffic traces"))).to_be_visible()
    user.act(page.get_by_text("users", exact=True).click)
    user.await_heading("users at a time are served with TTFT 500 ms")
    assert "plan_what=users" in page.url
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_a_click_on_a_point_of_the_frontier_loads_its_scenario(user: Browser) -> None:
    user.open("plan?plan_what=GPUs&requests=100&plan_rate=5", "Plan")
    page = user.page
    frontier = page.locator(".st-key-plan_frontier")
    frontier.wait_for(timeout=120_000)
    point = frontier.locator(".points path").nth(1)
    for _ in range(5):  # a chart that is just drawn anew, as its job ends, loses the click
        user.settle()
        point.click(force=True)
        with suppress(NotLoaded):
            page.wait_for_url(re.compile(r"[?&]rate="), timeout=15_000)
            break
    user.settle()
    assert re.search(r"[?&]rate=", page.url)
    user.assert_sound()
