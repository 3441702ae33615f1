"""The list of pages, and the functions that draw them."""

from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard import pages
from servetwin.app.dashboard.formatting import page_text
from servetwin.app.dashboard.pages import FIRST, PAGES, drawing


def test_every_folder_with_a_page_is_listed_under_its_name() -> None:
    folders = Path(pages.__file__).parent.glob("*/page.py")
    assert sorted(PAGES) == sorted(found.parent.name for found in folders)
    assert all(callable(drawing(name)) for name in PAGES)
    assert [page_text(name)[-1] for name in PAGES if name != "explore"] == ["?"] * 4


def test_what_answers_questions_comes_before_what_sends_requests_and_manages_files() -> None:
    names = list(PAGES)
    assert names[0] == FIRST
    assert names[-1] == "measure"
