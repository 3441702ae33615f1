"""The whole dashboard in a real browser."""

import pytest

from app.dashboard.pages import PAGES
from tests.support.dashboard_app import Browser, expect



@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_a_link_opens_its_page_and_logs_nothing(user: Browser, name: str) -> None:
    user.open(f"{name}?requests=100", PAGES[name])
    assert user.page.get_by_text("Page not found").count() == 0
    assert "requests=100" in user.page.url
    user.assert_sound()


@pytest.mark.browser
def test_slider_changes_numbers_and_link(user: Browser) -> None:
    user.open("?rate=12&requests=100", "What if?")
    number = user.page.get_by_test_id("stMetricValue").first
    before = number.inner_text()
    slider = user.page.get_by_role("slider", name="Requests per second")
    user.act(lambda: slider.press("ArrowRight"))
    expect(number).not_to_have_text(before)
    user.page.wait_for_url("**rate=12.5**")
    user.assert_sound()


@pytest.mark.browser
def test_link_restores_the_scenario(user: Browser) -> None:
    user.open("?rate=20&batching=chunked&max_seqs=64&requests=100", "What if?")
    page = user.page
    expect(page.get_by_role("slider", name="Requests per second")).to_have_value("20")
    page.get_by_test_id("stSidebar").get_by_text("Policies", exact=True).click()
    expect(page.get_by_label("Sequences in a batch", exact=True)).to_have_value("64")
    user.assert_sound()
