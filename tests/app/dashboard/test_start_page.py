"""The answers to links: where a page finds its server, and where the first page's name leads."""

import re
from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
import streamlit
from starlette.applications import Starlette
from starlette.testclient import TestClient

from servetwin.app.dashboard.pages import FIRST, PAGES
from servetwin.app.dashboard.start_page import page_routes, start_page

CLIENT = TestClient(Starlette(routes=page_routes()), follow_redirects=False)


@pytest.mark.parametrize("name", ["", *(name for name in PAGES if name != FIRST)])
def test_a_link_gets_the_start_page_that_names_the_server(name: str) -> None:
    answer = CLIENT.get(f"/{name}?rate=3")
    assert (answer.status_code, answer.text) == (200, start_page())
    assert answer.headers["cache-control"] == "no-cache"


def test_the_server_is_named_before_any_script_of_streamlit_runs() -> None:
    scripts = re.findall(r"<script[^>]*>", start_page())
    named = start_page().index("BACKEND_BASE_URL")
    assert named < start_page().index("prerenderReady") < start_page().index('type="module"')
    assert scripts[0] == "<script>"


def test_the_script_of_a_figure_and_all_that_it_imports_are_asked_for_at_once() -> None:
    """Each is there, none twice; a chart's is not among them, which would hold up the others."""
    asked = re.findall(r'(?:href|src)="./static/js/([^"]+)"', start_page())
    scripts = Path(streamlit.__file__).parent / "static" / "static" / "js"
    (drawing,) = (name for name in asked if name.startswith("Metric."))
    imported = re.findall(r'from"\./([^"]+)"', (scripts / drawing).read_text())
    assert imported
    assert set(imported) <= set(asked)
    assert len(asked) == len(set(asked))
    assert all((scripts / name).is_file() for name in asked)
    assert not [name for name in asked if name.startswith("Plotly")]


@pytest.mark.parametrize(
    ("asked", "led_to"),
    [
        (f"/{FIRST}", "./"),
        (
            f"/{FIRST}?rate=3&techniques=fp8&techniques=awq",
            "./?rate=3&techniques=fp8&techniques=awq",
        ),
        (f"/{FIRST}?why_request=generated%3A7", "./?why_request=generated%3A7"),
    ],
)
def test_the_name_of_the_first_page_leads_to_it_with_the_scenario(asked: str, led_to: str) -> None:
    answer = CLIENT.get(asked)
    assert answer.status_code == 307
    assert answer.headers["location"] == led_to
