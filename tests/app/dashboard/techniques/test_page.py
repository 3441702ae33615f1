"""The page Techniques: effects in words, operators on the roofline, memory, tables."""

import re
import time
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.dashboard.jobs import job
from servetwin.app.dashboard.jobs.shared_results import SharedResults
from servetwin.app.dashboard.techniques import effects, quality_panel
from servetwin.sim.techniques.effects import Change, Effect
from servetwin.sim.techniques.registry import TECHNIQUES, find_technique
from servetwin.sim.techniques.technique import Experiment
from tests.support.dashboard_app import Browser, expect, page_test

pytestmark = pytest.mark.usefixtures("small_dozen")


@pytest.fixture
def small_dozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages begin to measure one technique instead of twelve; none is measured yet."""
    monkeypatch.setattr(effects, "DOZEN", ("flash-attention",))
    monkeypatch.setattr(job, "RESULTS", SharedResults(100))


@pytest.mark.parametrize("shown", ["Effects", "Quality", "Roofline", "Memory"])
def test_every_panel_is_drawn(shown: str) -> None:
    at = page_test("techniques")
    at.session_state["techniques_show"] = shown
    at.run()
    assert not at.exception
    assert not at.error
    assert at.title[0].value == "Techniques"


@pytest.mark.slow
def test_a_dozen_is_measured_at_once_and_families_show_the_others() -> None:
    at = page_test("techniques").run()
    for _ in range(300):
        if not at.session_state["jobs"]["techniques"].is_running:
            break
        time.sleep(0.1)
    at.run()
    assert not at.exception
    table = at.dataframe[0].value.set_index("technique")
    assert list(table.index) == ["flash-attention"]
    assert table.loc["flash-attention", "TTFT alone"].split(" ")[0] in effects.WORDS.values()
    assert f"1 of {len(TECHNIQUES)} techniques are shown." in [c.value for c in at.caption]
    assert not any(button.label.startswith("Measure 1 ") for button in at.button)
    at.session_state["techniques_families"] = ["kernels"]
    at.run()
    assert len(at.dataframe[0].value) == 4
    assert "Measure 3 techniques" in [button.label for button in at.button]
    at.session_state["techniques_families"] = ["all"]
    at.run()
    assert len(at.dataframe[0].value) == len(TECHNIQUES)


def test_a_technique_is_switched_on_and_off_in_the_scenario() -> None:
    at = page_test("techniques").run()
    at.selectbox(key="techniques_chosen").set_value("weight-int4").run()
    at.text_input(key="techniques_parameters_weight-int4").set_value("group=64").run()
    press(at, "Turn on in the scenario")
    assert at.session_state["techniques"] == ["weight-int4:group=64"]
    assert at.session_state["times"] == "sheet"
    at.text_input(key="techniques_parameters_weight-int4").set_value("").run()
    press(at, "Change its parameters in the scenario")
    assert at.session_state["techniques"] == ["weight-int4"]
    press(at, "Turn off in the scenario")
    assert at.session_state["techniques"] == []


def test_what_the_server_has_by_itself_is_switched_off_and_on_again() -> None:
    at = page_test("techniques").run()
    at.selectbox(key="techniques_chosen").set_value("kv-cache").run()
    assert "Already enabled on this server." in [caption.value for caption in at.caption]
    press(at, "Turn off in the scenario")
    assert at.session_state["without"] == ["kv-cache"]
    assert "Turned off; the server enables it by default." in [one.value for one in at.caption]
    press(at, "Turn on in the scenario")
    assert (at.session_state["without"], at.session_state["techniques"]) == ([], [])


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("weight-int4", "group=none", "group"),
        ("tensor-parallel", "ways=3", "do not divide"),
        ("speculative", "draft=no-such", "no-such"),
        ("speculative", "draft=/etc/passwd", "names a file"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(name: str, parameters: str, said: str) -> None:
    at = page_test("techniques").run()
    at.selectbox(key="techniques_chosen").set_value(name).run()
    at.text_input(key=f"techniques_parameters_{name}").set_value(parameters).run()
    assert not at.exception
    (error,) = at.error
    assert said in error.value


def test_what_does_not_fit_is_a_verdict() -> None:
    at = page_test("techniques")
    at.session_state["techniques_show"] = "Memory"
    at.session_state["model"] = "llama-2-70b"
    at.run()
    assert not at.exception
    assert "weights alone do not fit" in at.error[0].value


def press(at: Any, label: str) -> None:
    next(button for button in at.button if button.label == label).click().run()
    assert not at.exception


@pytest.mark.browser
@pytest.mark.slow
def test_the_dozen_is_stopped_and_a_family_measured(user: Browser) -> None:
    user.open("techniques?times=sheet", "Techniques")
    page = user.page
    expect(page.get_by_text(f"12 of {len(TECHNIQUES)} techniques are shown")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped:")).to_be_visible()
    user.press("kernels")
    measure = page.get_by_role("button", name=re.compile(r"^Measure [34] techniques"))
    measure.click()
    expect(measure).to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_have_count(0, timeout=120_000)
    user.settle()
    expect(measure).to_have_count(0)
    expect(page.get_by_text("Stopped:")).to_have_count(0)
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_a_link_restores_the_roofline(user: Browser) -> None:
    user.open("techniques?techniques_show=Roofline&techniques_batch=100", "Techniques")
    page = user.page
    slider = page.get_by_role("slider", name="Sequences in a step")
    expect(slider).to_have_value("100")
    page.locator(".js-plotly-plot").first.wait_for()
    decode = page.get_by_text(re.compile(r"^Decode: .* ms a step"))
    before = decode.inner_text()
    user.act(lambda: slider.press("ArrowRight"))
    page.wait_for_url("**techniques_batch=101**")
    expect(decode).not_to_have_text(before)
    user.assert_sound()


def test_own_qualities_are_shown_and_wrong_ones_said_in_one_line() -> None:
    at = page_test("techniques")
    at.session_state["techniques_show"] = "Quality"
    at.session_state["techniques_families"] = ["all"]
    at.run()
    field = at.text_area(key="techniques_own_quality")
    field.set_value("cascade=accuracy:-3%@mine").run()
    assert not at.exception
    assert not at.error
    table = at.dataframe[0].value.set_index("technique")
    assert table.loc["cascade", "quality"] == "acc -3.0%"
    field.set_value("cascade=accuracy:-3%").run()
    (error,) = at.error
    assert "a quality without a source" in error.value


def test_fp8_on_a_device_without_it_says_that_it_is_emulated() -> None:
    at = page_test("techniques")
    at.session_state["gpu"] = "a100-80gb"
    at.session_state["techniques_chosen"] = "fp8"
    at.run()
    assert not at.exception
    assert any("emulated as weight-only" in caption.value for caption in at.caption)


def test_measured_techniques_are_drawn_against_their_quality(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = Change("throughput", 0.5, 0.4, 0.6)
    found = {
        name: Effect(find_technique(name), Experiment(), (change,)) for name in ("awq", "cascade")
    }
    monkeypatch.setattr(quality_panel, "measured", lambda server: found)
    at = page_test("techniques")
    at.session_state["techniques_families"] = ["all"]
    at.session_state["techniques_show"] = "Quality"
    at.run()
    assert not at.exception
    assert not at.info[1:], "only the note that the scenario is calibrated"
    assert len(at.get("plotly_chart")) == 1
    table = at.dataframe[0].value.set_index("technique")
    assert table.loc["awq", "on the front"] == "yes"
    assert table.loc["cascade", "quality"] == "not known"
