"""The whole dashboard in a real browser."""

from io import BytesIO
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from PIL import Image, ImageChops

from servetwin.app.dashboard.pages import PAGES
from tests.support.accessibility import (
    cut_off,
    focused,
    grave_findings,
    in_words,
    pale_texts_of_charts,
    show_in,
    stops,
)
from tests.support.dashboard_app import Browser, expect
from tests.support.effort import FULL


@pytest.mark.browser
def test_link_restores_the_scenario(user: Browser) -> None:
    user.open("explore?rate=20&batching=chunked&max_seqs=64&requests=100", "Explore")
    page = user.page
    expect(page.get_by_role("slider", name="Requests per second")).to_have_value("20")
    page.get_by_test_id("stSidebar").get_by_text("Policies", exact=True).click()
    expect(page.get_by_label("Sequences in a batch", exact=True)).to_have_value("64")
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_a_link_opens_its_page_whole_at_900_px_and_logs_nothing(user: Browser, name: str) -> None:
    """In CI, axe also finds nothing grave there in both themes."""
    page = user.page
    page.set_viewport_size({"width": 900, "height": 1000})
    user.open(f"{name}?requests=100", PAGES[name])
    assert page.get_by_text("Page not found").count() == 0
    assert "requests=100" in page.url
    for theme in ("light", "dark") if FULL else ():
        show_in(page, theme)
        found = grave_findings(page)
        assert not found, f"{theme}: {in_words(found)}"
        assert pale_texts_of_charts(page) == [], theme
    assert cut_off(page) == []
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_the_button_of_a_page_can_be_read_while_it_is_pointed_at_and_pressed(user: Browser) -> None:
    user.open("measure?requests=100", "Measure")
    page = user.page
    button = page.get_by_role("button", name="Start").bounding_box()
    assert button
    within = "[data-testid=stFormSubmitButton]"
    assert page.locator(within).count() == 1
    for theme in ("light", "dark"):
        show_in(page, theme)
        page.mouse.move(button["x"] + 9, button["y"] + 9)
        assert not grave_findings(page, within), f"{theme}, pointed at"
        page.mouse.down()
        assert not grave_findings(page, within), f"{theme}, pressed"
        page.mouse.move(0, 0)
        page.mouse.up()


@pytest.mark.slow
@pytest.mark.browser
def test_the_keyboard_reaches_the_slider_in_order_and_moves_it(user: Browser) -> None:
    user.open("explore?rate=12&requests=100", "Explore")
    page = user.page
    number = page.get_by_test_id("stMetricValue").first
    before = number.inner_text()
    passed, screens = [], [page.screenshot()]
    for stop in stops(page):
        passed.append(stop)
        screens.append(page.screenshot())
        if stop["role"] == "slider":
            break
    assert passed[-1]["name"] == "Requests per second"
    assert all(stop["name"] for stop in passed), passed
    for stop, before_it, at_it in zip(passed, screens, screens[1:], strict=False):
        assert differs(before_it, at_it, stop), f"no focus is seen on {stop}"
    user.act(lambda: page.keyboard.press("ArrowRight"))
    expect(number).not_to_have_text(before)
    page.wait_for_url("**rate=12.5**")
    assert focused(page)["name"] == "Requests per second"
    user.assert_sound()


def differs(a: bytes, b: bytes, stop: dict[str, Any]) -> bool:
    """Return whether two pictures of the window differ about the place of a stop."""
    left, top = stop["x"] - 6, stop["y"] - 6
    box = (left, top, left + stop["width"] + 12, top + stop["height"] + 12)
    before, after = (Image.open(BytesIO(one)).convert("RGB").crop(box) for one in (a, b))
    return ImageChops.difference(before, after).getbbox() is not None
