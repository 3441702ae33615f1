"""Where step times come from: the same word on every page, for each kind of server."""

from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.charts import in_colour
from servetwin.app.dashboard.scenario.allowed_choices import places
from servetwin.app.words import LOOKS
from servetwin.sim.step_times.provenance import Origin
from tests.support.dashboard_app import Browser, expect, page_test

pytestmark = pytest.mark.usefixtures("few_replications")
SHEETS: Origin = "computed from data sheets"


def captions(at: Any) -> list[str]:
    assert not at.exception
    return [caption.value for caption in at.caption]


def test_a_word_stands_behind_its_colour() -> None:
    assert in_colour("kernel tables").startswith(':color[■]{foreground="#')
    assert LOOKS["kernel tables"][0] in in_colour("kernel tables")


def test_the_side_says_truly_what_a_profile_is() -> None:
    at = page_test("why")
    at.session_state["requests"] = 20
    model, gpu = places()["base-cpu"]
    for name, value in {"model": model, "gpu": gpu, "times": "base-cpu"}.items():
        at.session_state[name] = value
    at.run()
    assert f"Step times: {in_colour('measured here')}" in captions(at)


def test_explore_and_trust_say_the_same_of_the_first_server() -> None:
    at = page_test("explore")
    at.session_state["requests"] = 60
    at.run()
    assert any(said == f"Step times: {in_colour(SHEETS)}" for said in captions(at))
    at = page_test("trust").run()
    assert not at.exception
    assert any(info.value.startswith(f"Step times: {SHEETS}.") for info in at.info)


@pytest.mark.slow
@pytest.mark.browser
def test_no_page_calls_the_first_server_measured(user: Browser) -> None:
    """The server that the dashboard begins with is computed, and every page says so."""
    user.open("explore?requests=60", "Explore")
    for name in ("Explore", "Trust"):
        if name != "Explore":
            user.visit(name)
        side = user.page.get_by_test_id("stSidebar")
        expect(side.get_by_text(f"Step times: ■ {SHEETS}")).to_have_count(1)
        assert "calibrated" not in side.inner_text().lower()
    expect(user.page.get_by_text(f"Step times: {SHEETS}.")).to_be_visible()
    user.assert_sound()
