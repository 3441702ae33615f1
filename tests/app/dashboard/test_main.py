"""The whole dashboard in a real browser."""

import pytest

from tests.support.dashboard_app import Browser

expect = pytest.importorskip("playwright.sync_api").expect

PAGES = {
    "": "What if?",
    "compare": "Compare",
    "frontier": "Frontier",
    "policies": "Policies",
    "timeline": "Timeline",
    "trust": "Trust",
    "techniques": "Techniques",
    "load-test": "Load test",
    "runs": "Runs",
}


@pytest.mark.browser
@pytest.mark.parametrize("path", PAGES)
def test_page_opens(chromium: Browser, path: str) -> None:
    chromium.open(path, PAGES[path])
    chromium.assert_sound()


@pytest.mark.browser
def test_slider_changes_numbers_and_link(chromium: Browser) -> None:
    chromium.open("?rate=12", "What if?")
    page = chromium.page
    number = page.get_by_test_id("stMetricValue").first
    before = number.inner_text()
    page.get_by_role("slider", name="Requests per second").press("ArrowRight")
    expect(number).not_to_have_text(before)
    page.wait_for_url("**rate=12.5**")
    chromium.assert_sound()


@pytest.mark.browser
def test_link_restores_the_scenario(chromium: Browser) -> None:
    chromium.open("?rate=20&batching=chunked&max_seqs=64", "What if?")
    page = chromium.page
    expect(page.get_by_role("slider", name="Requests per second")).to_have_value("20")
    page.get_by_test_id("stSidebar").get_by_text("Policies", exact=True).click()
    expect(page.get_by_label("Sequences in a batch")).to_have_value("64")
    chromium.assert_sound()
