"""Pictures of charts, saved by the browser: no Chrome on the server, nothing from elsewhere."""

import json
import re
import struct
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
import streamlit

from servetwin.app.dashboard import pictures
from servetwin.app.dashboard.pictures import picture_buttons
from servetwin.workloads.program.package import own_version
from tests.support.dashboard_app import Browser, expect
from tests.support.drawn_figures import DRAWN

BATCHING = ("static+contiguous", "continuous+contiguous")


def saved(user: Browser, chart: str, button: str, folder: Path) -> Path:
    """Press a button of a chart in the menu, and return the file that comes down."""
    below = buttons_of(user, chart)
    with user.page.expect_download(timeout=60_000) as found:
        below.get_by_role("button", name=button, exact=True).click()
    expect(below.get_by_role("status")).to_have_text("saved")
    path = folder / str(found.value.suggested_filename)
    found.value.save_as(path)
    return path


def buttons_of(user: Browser, chart: str) -> Any:
    """Open the menu of the page, and return the buttons of a chart."""
    buttons = user.page.locator(f"[data-chart={chart}]")
    if not buttons.count():
        user.page.get_by_role("button", name="Save as ...").click()
    return buttons


def texts(svg: Path) -> str:
    return " ".join(ET.fromstring(svg.read_bytes()).itertext())


def fill(svg: Path, text: str) -> str:
    """The colour of a text of a drawing."""
    root = ET.fromstring(svg.read_bytes())
    (found,) = [each for each in root.iter() if each.text == text and each.tag.endswith("text")]
    return (re.search(r"fill: (rgb\([^)]*\))", found.get("style", "")) or [""])[1]


@pytest.mark.slow
@pytest.mark.browser
def test_a_chart_for_a_talk_from_the_first_screen_to_the_file(
    user: Browser, tmp_path: Path
) -> None:
    """Three clicks: the talk's chart, the menu, a picture."""
    user.open("explore?requests=60", "Explore")
    user.press("Show me static against continuous batching")
    light = saved(user, "explore_ttft_s", "SVG, light", tmp_path)
    dark = saved(user, "explore_ttft_s", "SVG, dark", tmp_path)
    assert light.name == "distribution-of-ttft-light.svg"
    assert dark.name == "distribution-of-ttft-dark.svg"
    for path, ink in ((light, "rgb(31, 36, 48)"), (dark, "rgb(230, 232, 238)")):
        root = ET.fromstring(path.read_bytes())
        assert (root.get("width"), root.get("height")) == ("960", "540")
        said = texts(path)
        for text in (
            "Distribution of TTFT", "share of requests, %", *BATCHING,
            "Simulated: llama-3-8b on h100", "60 generated requests", "seed 0",
            f"Servetwin {own_version()}", urlsplit(user.url).netloc,
        ):  # fmt: skip
            assert text in said, text
        assert fill(path, "share of requests, %") == ink
        assert "requests=60" in path.read_text(), "the link of the scenario"
        assert BATCHING[0].replace("+", "%2B") in path.read_text()
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_a_png_is_drawn_at_twice_the_size(user: Browser, tmp_path: Path) -> None:
    """Also where a busy browser has not drawn the chart yet, when the button is pressed."""
    held: list[Any] = []
    user.page.route("**/PlotlyChart.*.js", lambda route: held.append(route))
    user.open("explore?requests=60", "Explore")
    buttons = buttons_of(user, "explore_ttft_s")
    with user.page.expect_download() as found:
        buttons.get_by_role("button", name="PNG, light").click()
        expect(buttons.get_by_role("status")).to_have_text("drawing ...")
        for route in held:
            route.continue_()
    assert Path(found.value.path()).stat().st_size > 10_000
    user.page.unroute("**/PlotlyChart.*.js")
    for theme in ("light", "dark"):
        path = saved(user, "explore_ttft_s", f"PNG, {theme}", tmp_path)
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert struct.unpack(">II", content[16:24]) == (1920, 1080)
        assert len(content) < 500_000
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_a_picture_shows_the_chart_as_it_stands(user: Browser, tmp_path: Path) -> None:
    user.open("explore?requests=60", "Explore")
    legend = user.page.locator(".st-key-explore_ttft_s .legendtoggle").last
    legend.click()  # hides the SLO's line, after the time of a double click
    hidden = user.page.locator(".st-key-explore_ttft_s .traces").last
    expect(hidden).to_have_css("opacity", "0.5")
    whole = user.page.evaluate(DRAWN_LINES.replace("KEY", "explore_ttft_s"))
    path = saved(user, "explore_ttft_s", "SVG, light", tmp_path)
    assert len(re.findall('class="trace scatter', path.read_text())) == whole
    user.assert_sound()


DRAWN_LINES = "document.querySelectorAll('.st-key-KEY .scatterlayer > .trace').length"


@pytest.mark.slow
@pytest.mark.browser
def test_what_cannot_be_drawn_is_said_below_the_chart(user: Browser) -> None:
    user.open("explore?requests=60", "Explore")
    expect(user.page.locator(".st-key-explore_ttft_s .traces").first).to_be_visible()
    user.page.route("**/plotly.min.js", lambda route: route.abort())
    below = buttons_of(user, "explore_ttft_s")
    below.get_by_role("button", name="SVG, light").click()
    expect(below.get_by_role("status")).to_have_text("not saved: plotly.js is not there")
    user.page.unroute("**/plotly.min.js")
    below.get_by_role("button", name="SVG, light").click()
    expect(below.get_by_role("status")).to_have_text("saved")


@pytest.mark.parametrize("name", DRAWN)
def test_every_figure_has_its_buttons(name: str) -> None:
    place = ET.fromstring(picture_buttons(DRAWN[name](), "key", '<source> & "more"'))
    labels = [button.text for button in place.iter("button")]
    assert labels == ["SVG, light", "SVG, dark", "PNG, light", "PNG, dark"]
    asked: dict[str, Any] = json.loads(place.attrib["data-picture"])
    assert DRAWN[name]().title.split()[0] in asked["layout"]["title"]["text"]
    assert asked["layout"]["title"]["subtitle"]["text"].endswith("<br>{link}")
    assert re.fullmatch(r"[a-z0-9-]+", place.attrib["data-name"])


def test_charts_wait_until_the_browser_has_asked_for_the_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That it asks for the script says that it shows what came before."""
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    drawn: list[str] = []
    monkeypatch.setattr(pictures, "_FIRST_PAGE_S", 60.0)
    monkeypatch.setattr(pictures, "end_if_stale", lambda: None)
    monkeypatch.setattr(streamlit, "session_state", {})
    monkeypatch.setattr(streamlit, "html", lambda text, **_: drawn.append(text))
    pictures.await_first_page()  # nothing to wait for where no script was drawn
    pictures.load_picture_script()
    (address,) = re.findall(r'src="(pictures/[^"]+)"', " ".join(drawn))
    browser = TestClient(Starlette(routes=pictures.picture_routes()))
    asked = Timer(0.2, lambda: browser.get(f"/{address}"))
    asked.start()
    begun_s = monotonic()
    pictures.await_first_page()
    assert 0.15 < monotonic() - begun_s < 30
    pictures.load_picture_script()
    assert len({*re.findall(r'src="(pictures/[^"]+)"', " ".join(drawn))}) == 1


def test_a_client_that_runs_no_scripts_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[None] = []
    monkeypatch.setattr(pictures, "_FIRST_PAGE_S", 0.05)
    monkeypatch.setattr(pictures, "end_if_stale", lambda: looks.append(None))
    monkeypatch.setattr(streamlit, "session_state", {})
    monkeypatch.setattr(streamlit, "html", lambda *_, **__: None)
    pictures.load_picture_script()
    pictures.await_first_page()
    assert looks
