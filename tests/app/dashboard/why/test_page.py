"""The timeline: what it draws of a run, whom it explains, and the page."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from tests.support.dashboard_app import Browser, expect, page_test
from tests.support.figure_frames import load_test


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr("servetwin.app.dashboard.why.page.runs_folder", lambda: tmp_path)
    at = page_test("why")
    at.session_state["requests"] = 100
    return at


def test_the_page_explains_the_request_of_the_box(page: Any) -> None:
    page.session_state["why_request"] = "generated:7"
    page.run()
    assert not page.exception
    assert not page.error
    assert [title.value for title in page.title] == ["Why"]
    assert r"Request generated\:7" in [header.value for header in page.subheader]
    table = next(t.value for t in page.dataframe if "part" in t.value)
    start_s, end_s = page.slider(key="why_window").value
    assert end_s - start_s > table["ms"].sum() / 1000


def test_the_slowest_request_is_an_example_until_another_is_asked_for(page: Any) -> None:
    page.run()
    assert not page.exception
    slowest = page.dataframe[-1].value["request"].iloc[0].replace(":", r"\:")
    assert f"Example: request {slowest}" in [header.value for header in page.subheader]
    assert any("The slowest of this run." in caption.value for caption in page.caption)
    page.text_input(key="why_request").set_value("generated:7").run()
    headers = [header.value for header in page.subheader]
    assert r"Request generated\:7" in headers
    assert not any("Example" in header for header in headers)
    page.text_input(key="why_request").set_value("nothing").run()
    assert not any("equest" in h.value and "slowest" not in h.value for h in page.subheader)


def test_another_scenario_is_another_timeline(page: Any) -> None:
    page.run()
    ends_s = [page.slider(key="why_window").max]
    page.slider(key="rate").set_value(20.0).run()
    ends_s.append(page.slider(key="why_window").max)
    assert not page.exception
    assert ends_s[1] < 0.75 * ends_s[0]


def test_the_page_says_which_request_was_meant(page: Any) -> None:
    page.session_state["why_request"] = "generatd:7"
    page.run()
    assert not page.exception
    assert r"did you mean 'generated\:7'" in page.error[0].value


def test_the_window_can_be_chosen(page: Any) -> None:
    page.session_state["why_window"] = (2.0, 4.0)
    page.run()
    assert page.slider(key="why_window").value == (2.0, 4.0)
    assert any("requests in this window" in caption.value for caption in page.caption)


def test_a_window_of_another_run_gives_way(page: Any) -> None:
    page.session_state["why_window"] = (5000.0, 6000.0)
    page.run()
    assert not page.exception
    assert page.slider(key="why_window").value[1] < 100


def test_a_kept_run_is_shown_and_a_damaged_one_named(page: Any, tmp_path: Path) -> None:
    load_test(12).save(tmp_path / "measured")
    load_test(3).save(tmp_path / "broken")
    (tmp_path / "broken" / "requests.parquet").write_text("nothing")
    page.session_state["why_run"] = "measured"
    page.session_state["why_window"] = (0.0, 1000.0)
    page.run()
    assert not page.exception
    assert any("12 requests" in caption.value for caption in page.caption)
    page.selectbox(key="why_run").set_value("broken").run()
    assert not page.exception
    assert page.error[0].value.startswith("broken")
    assert str(tmp_path) not in page.error[0].value


def test_a_run_that_is_written_again_is_read_again(page: Any, tmp_path: Path) -> None:
    load_test(12).save(tmp_path / "measured")
    page.session_state["why_run"] = "measured"
    page.session_state["why_window"] = (0.0, 1000.0)
    page.run()
    load_test(8).save(tmp_path / "measured")
    page.run()
    assert any("8 requests" in caption.value for caption in page.caption)


def test_a_run_in_which_nothing_finished_is_shown(page: Any, tmp_path: Path) -> None:
    run = load_test(4, status="refused", error="full")
    run.requests[["first_token_s", "last_token_s"]] = np.nan
    run.save(tmp_path / "refused")
    page.session_state["why_run"] = "refused"
    page.session_state["why_request"] = "r1"
    page.run()
    assert not page.exception
    assert any("Refused\\: full" in text.value for text in page.markdown)


def test_the_task_of_the_request_is_drawn_and_described(page: Any, tmp_path: Path) -> None:
    run = load_test(4)
    run.requests = run.requests.assign(
        task="r0", task_s=9.0, turn=[0, 0, 1, 1], session=["root", "root/1", "root/1", "root"],
        parents=pd.Series([[], ["r0"], ["r1"], ["r0", "r2"]], dtype=object),
    )  # fmt: skip
    run.save(tmp_path / "agents")
    page.session_state["why_run"] = "agents"
    page.session_state["why_request"] = "r1"
    page.run()
    assert not page.exception
    said = "A task of 4 requests in 2 sessions, "
    assert [text.value.endswith("s long. Click on a bar to explain that request.")
            for text in page.caption if text.value.startswith(said)] == [True]  # fmt: skip


@pytest.mark.slow
@pytest.mark.browser
def test_a_click_on_a_bar_explains_its_request(user: Browser) -> None:
    user.open("why?requests=100&why_window=0&why_window=9.5", "Why")
    page = user.page
    timeline = page.locator(".st-key-why_timeline .js-plotly-plot")
    bar = timeline.locator(".subplot.xy .trace.bars").last.locator(".point path").first
    bar.wait_for()
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    assert box
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    user.act(lambda: page.mouse.click(*middle))
    page.wait_for_url("**why_request=generated**")
    user.await_heading("Request generated:")
    assert page.get_by_role("heading", name="Example").count() == 0
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_a_link_restores_request_and_window(user: Browser) -> None:
    link = "requests=100&why_request=generated:33&why_window=2&why_window=9.5"
    user.open(f"why?{link}", "Why")
    user.await_heading("Request generated:33")
    expect(user.page.get_by_label("Request to explain")).to_have_value("generated:33")
    ends = user.page.get_by_test_id("stMain").get_by_role("slider")
    assert [end.input_value() for end in ends.all()] == ["2", "9.5"]
    user.assert_sound()
