"""The sentence and the example for a first visit, in a real browser."""

import pytest

from servetwin.app.dashboard.compare.policy_comparison import (
    POLICIES_KEY,
    policy_labels,
    scenario_under,
)
from servetwin.app.dashboard.what_if.page import BATCHING, BUTTON
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from tests.support.dashboard_app import Browser, expect, page_test

pytestmark = pytest.mark.usefixtures("few_replications")


def test_the_example_differs_in_nothing_but_the_batching() -> None:
    assert set(BATCHING) <= set(policy_labels())
    before, after = (scenario_under(ScenarioFile(), label).settled() for label in BATCHING)
    differing = {
        name: value
        for name, value in before.policies.as_dict().items()
        if after.policies.as_dict()[name] != value
    }
    assert differing == {"batching": "static"}


def test_the_page_has_one_sentence_and_one_button() -> None:
    at = page_test("what_if")
    at.session_state["requests"] = 30
    at.run()
    assert any(c.value.startswith("Servetwin predicts what the users") for c in at.caption)
    assert [b.label for b in at.button].count(BUTTON) == 1
    assert POLICIES_KEY not in at.session_state


@pytest.mark.slow
@pytest.mark.browser
def test_one_click_fills_compare_with_static_against_continuous(user: Browser) -> None:
    user.open("compare?requests=300&rate=20&compare_policies=chunked", "Compare")
    user.visit("What if")
    page = user.page
    page.get_by_role("button", name=BUTTON).click()
    user.await_heading("Compare", level=1)
    user.settle()
    expect(page.get_by_text("Differences from static+contiguous")).to_be_visible()
    heads = page.get_by_role("table").first.get_by_role("columnheader").all_inner_texts()
    assert [head.replace("\u200b", "") for head in heads if head.strip()] == list(BATCHING)
    chart = page.get_by_test_id("stPlotlyChart").first
    expect(chart.locator(".legendtext").first).to_have_text(BATCHING[0])
    expect(page.get_by_label("Requests", exact=True)).to_have_value("300")
    assert "requests=300" in page.url
    link = f"{POLICIES_KEY}={BATCHING[0]}&{POLICIES_KEY}={BATCHING[1]}".replace("+", "%2B")
    assert link in page.url
    user.assert_sound()
