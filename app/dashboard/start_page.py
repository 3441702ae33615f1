"""The start page: Streamlit's, with the address of its server and the scripts of the first figures.

Streamlit's script would look for the server below the address of a link first, find nothing, and
log a 404. It would ask for the script that draws a figure only when the first one comes, just
before a chart asks for its own, which is 500 times as large. The style sheet is here too: as an
element of the script it is away for the moments in which Streamlit draws the page anew. The first
page has no name in its address: a link with its name leads there.
"""

import re
from functools import cache
from pathlib import Path

import streamlit
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route

from servetwin.app.dashboard.pages import FIRST, PAGES
from servetwin.app.words import asset

_STATIC = Path(streamlit.__file__).parent / "static"
_SCRIPTS = _STATIC / "static" / "js"
_OF_A_FIGURE = "Metric.*.js"
_SCRIPT = """
      window.__streamlit = {
        BACKEND_BASE_URL: location.origin + location.pathname.replace(/[^/]*$/, ""),
      }
    """


@cache
def start_page() -> str:
    """Return the start page; the server is at the folder of its address."""
    text = (_STATIC / "index.html").read_text()
    scripts = [name for name in _scripts_of_a_figure() if name not in text]
    early = (f'<link rel="modulepreload" href="./static/js/{name}">' for name in scripts)
    script = f"<script>{_SCRIPT}</script>"
    text = text.replace("<head>", f"<head>\n    {script}", 1)
    style = f"<style>{asset('dashboard.css')}</style>"
    return text.replace("</head>", "\n    ".join(["  ", *early, style]) + "\n  </head>", 1)


def _scripts_of_a_figure() -> list[str]:
    """Return the names of the script that draws a figure and of those that it imports."""
    scripts = []
    for path in _SCRIPTS.glob(_OF_A_FIGURE):
        scripts += [path.name, *re.findall(r'from"\./([^"/]+\.js)"', path.read_text())]
    return scripts


def page_routes() -> list[Route]:
    """Return a route for each page's address."""
    others = [Route(f"/{name}", _start) for name in PAGES if name != FIRST]
    return [Route("/", _start), Route(f"/{FIRST}", _to_first), *others]


def _start(_: Request) -> HTMLResponse:
    return HTMLResponse(start_page(), headers={"Cache-Control": "no-cache"})


def _to_first(request: Request) -> RedirectResponse:
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"./{query}")
