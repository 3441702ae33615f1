"""Trust: errors in detail, what a profile keeps, what a scenario rests on, and the page."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from tests.support.dashboard_app import Browser, page_test
from tests.support.figure_frames import load_test

NAME = "example-demo-2026-11-27/at-70"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr("servetwin.app.dashboard.trust.page.runs_folder", lambda: tmp_path)
    at = page_test("trust")
    at.session_state["requests"] = 100
    return at


def test_the_page_shows_the_bundled_trial_on_a_first_visit(page: Any) -> None:
    page.run()
    assert not page.exception
    assert not page.error
    assert [title.value for title in page.title] == ["Trust"]
    assert page.selectbox(key="trust_trial").value == NAME
    (box,) = page.success
    assert "4 load tests place every judged error within its limit" in box.value
    captions = [caption.value.replace("\\", "") for caption in page.caption]
    assert any(c.startswith("Measured ") for c in captions)
    (metrics,) = (one.value["metric"].tolist() for one in page.dataframe if "metric" in one.value)
    assert metrics[:2] == ["steps, all, ms", "steps, decode, ms"]
    assert any("computed from data sheets" in info.value for info in page.info)


def test_the_page_says_what_was_extrapolated(page: Any) -> None:
    shown = {"model": "base", "gpu": "AMD EPYC", "times": "base-cpu", "prompt_tokens": 2000}
    for name, value in shown.items():
        page.session_state[name] = value
    page.run()
    assert not page.exception
    assert "lies outside the range of profile" in page.warning[0].value


def test_a_run_that_is_added_becomes_a_trial(page: Any, tmp_path: Path) -> None:
    page.run()
    measured, predicted = load_test(8), load_test(8)
    predicted.kind = "simulation"
    measured.save(tmp_path / "tested")
    predicted.save(tmp_path / "replayed")
    page.run()
    assert not page.exception
    assert page.selectbox(key="trust_trial").options == ["replayed", NAME]


def test_the_page_shows_the_profile_that_was_chosen(page: Any) -> None:
    page.session_state["trust_profile"] = "base-cpu"
    page.run()
    assert not page.exception
    assert any("Profile base-cpu" in x.value.replace("\\", "") for x in page.markdown)


def test_an_impossible_scenario_leaves_the_rest_of_the_page(page: Any) -> None:
    for name, value in {"model": "opt-66b", "gpu": "l4"}.items():
        page.session_state[name] = value
    page.run()
    assert not page.exception
    assert len(page.error) == 1
    assert page.selectbox(key="trust_trial").value == NAME


def test_real_gpus_are_shown_with_source_figures_and_the_command(page: Any) -> None:
    page.run()
    assert not page.exception
    assert "Predictions of real GPUs" in [heading.value for heading in page.subheader]
    (said,) = (x.value for x in page.markdown if x.value.startswith("Measured by others"))
    assert "LLMServingSim" in said
    tables = [one.value for one in page.dataframe if "GPU" in one.value]
    assert len(tables) == 3
    assert all(set(table["GPU"]) == {"RTX 4090", "RTX PRO 6000"} for table in tables)
    assert "verify --recorded" in page.code[-1].value


@pytest.mark.slow
@pytest.mark.browser
def test_real_gpus_are_drawn_by_evidence(user: Browser) -> None:
    user.open("trust?requests=100", "Trust")
    user.await_heading("Predictions of real GPUs")
    drawn = user.page.locator(".js-plotly-plot").filter(has_text="kernel tables and stamps")
    drawn.get_by_text("predicted TTFT, s").wait_for()
    assert drawn.get_by_text("E2E latency, s", exact=True).count() == 1
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_another_metric_is_drawn_and_linked(user: Browser) -> None:
    user.open("trust?requests=100", "Trust")
    page = user.page
    user.act(page.get_by_role("radio", name="TPOT").click)
    percentiles = page.get_by_role("figure", name="Percentiles of TPOT")
    percentiles.get_by_text("predicted TPOT, ms").wait_for()
    page.wait_for_url("**trust_metric=TPOT**")
    user.assert_sound()
