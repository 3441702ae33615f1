"""The list of pages, and the functions that draw them."""

from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard import pages
from servetwin.app.dashboard.pages import FIRST, PAGES, drawing


def test_every_folder_with_a_page_is_listed_under_its_name() -> None:
    folders = Path(pages.__file__).parent.glob("*/page.py")
    assert sorted(PAGES) == sorted(found.parent.name.replace("_", "-") for found in folders)
    for name in PAGES:
        assert drawing(name).__module__ == f"servetwin.app.dashboard.{name.replace('-', '_')}.page"


def test_what_answers_questions_comes_before_what_sends_requests_and_manages_files() -> None:
    names = list(PAGES)
    assert names[0] == FIRST
    assert names[-2:] == ["load-test", "runs"]
