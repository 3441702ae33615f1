"""The example for a first visit, and for a talk: one click."""

import pytest

from servetwin.app.dashboard.explore.comparison import LABELS, POLICIES_KEY, scenario_under
from servetwin.app.dashboard.explore.page import BATCHING, BUTTON
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from tests.support.dashboard_app import Browser, expect


def test_the_example_differs_in_the_batching_alone() -> None:
    assert set(BATCHING) <= set(LABELS)
    before, after = (scenario_under(ScenarioFile(), label).settled() for label in BATCHING)
    differing = {
        name: value
        for name, value in before.policies.as_dict().items()
        if after.policies.as_dict()[name] != value
    }
    assert differing.pop("batching") == "static"
    assert differing.keys() == {"kv_tokens"}, "what the larger steps leave of the memory"


@pytest.mark.slow
@pytest.mark.browser
def test_one_click_draws_static_beside_continuous(user: Browser) -> None:
    user.open(f"explore?requests=300&rate=20&{POLICIES_KEY}=chunked", "Explore")
    page = user.page
    user.press(BUTTON)
    heads = page.get_by_role("table").first.get_by_role("columnheader").all_inner_texts()
    shown = [head.replace("\u200b", "") for head in heads if head.strip()]
    assert shown == ["this scenario", *BATCHING]
    chart = page.locator(".st-key-explore_loads")
    expect(chart.locator(".legendtext").nth(1)).to_have_text(BATCHING[0])
    link = "&".join(f"{POLICIES_KEY}={label}" for label in BATCHING).replace("+", "%2B")
    page.wait_for_url(f"**{link}**")
    assert "requests=300" in page.url
    user.assert_sound()
