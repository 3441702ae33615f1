"""An uploaded table is shown with its mapping, to be confirmed once: the link remembers it."""

from pathlib import Path

import pytest

from tests.support.dashboard_app import Browser, expect

pytestmark = pytest.mark.browser

CLEAR = (
    "created_at;input_tokens;completion_tokens;status;agent\n"
    "2026-11-20 09:00:00,000;412;35;200;web\n2026-11-20 09:00:00,310;58;21;200;app\n"
    "2026-11-20 09:00:00,640;77;;429;app\n"
)
DOUBTFUL = "time,prompt,x\n0,412,35\n1500,58,21\n"


@pytest.mark.slow
def test_a_table_is_confirmed_once_and_its_link_asks_nothing(user: Browser, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(CLEAR)
    user.open("explore?requests=100", "Explore")
    user.upload(path)
    dialog = user.page.get_by_role("dialog")
    expect(dialog.get_by_text("Columns of mine.csv")).to_be_visible()
    expect(
        dialog.get_by_text("--map arrival=created_at,prompt_tokens=input_tokens")
    ).to_be_visible()
    user.press("Use these columns")
    expect(dialog).to_have_count(0)
    sidebar = user.page.get_by_test_id("stSidebar")
    expect(sidebar.get_by_text("mine.csv: 2 requests; failed: 429 (1)")).to_be_visible()
    user.assert_sound()
    link = user.page.url.removeprefix(f"{user.url}/")
    assert "columns=arrival%3Dcreated_at" in link
    user.page.goto("about:blank")
    user.open(link, "Explore")
    user.upload(path)
    expect(sidebar.get_by_text("mine.csv: 2 requests; failed: 429 (1)")).to_be_visible()
    assert dialog.count() == 0
    user.assert_sound()


@pytest.mark.slow
def test_a_doubt_is_asked_and_a_wrong_answer_is_said(user: Browser, tmp_path: Path) -> None:
    path = tmp_path / "doubt.csv"
    path.write_text(DOUBTFUL + "x,1,1\n")
    user.open("explore?requests=100", "Explore")
    user.upload(path)
    dialog = user.page.get_by_role("dialog")
    expect(dialog.get_by_text("time: an arrival or a duration, in s or ms?")).to_be_visible()
    expect(dialog.get_by_text("no column is clearly the answer")).to_be_visible()
    user.press("Use these columns")
    expect(dialog.get_by_text("doubt.csv:4: field 'time': no time: wants a number")).to_be_visible()
    user.act(dialog.get_by_role("button", name="Close").click)
    expect(dialog).to_have_count(0)
    path.write_text(DOUBTFUL)
    user.upload(path)
    user.act(dialog.get_by_label("Arrival in").click)
    user.act(user.page.get_by_role("option", name="milliseconds").click)
    expect(dialog.get_by_text("--map arrival_ms=time,prompt_tokens=prompt")).to_be_visible()
    user.press("Use these columns")
    expect(
        user.page.get_by_test_id("stSidebar").get_by_text("doubt.csv: 2 requests")
    ).to_be_visible()
    expect(user.page.get_by_label("Columns", exact=True)).to_be_visible()
    user.fill("Columns", "arrival_s=time,prompt_tokens=prompt,output_tokens=none")
    expect(user.page.get_by_text("no column 'none'; it has time, prompt, x")).to_be_visible()
    user.assert_sound()
