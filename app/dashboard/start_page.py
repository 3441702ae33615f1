"""The answers to links: Streamlit's start page, which is told where its server is.

Its script would look for the server below the address of the page first, find nothing, and log a
404. The first page has no name in its address: a link with its name leads there.
"""

from functools import cache
from pathlib import Path

import streamlit
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route

from app.dashboard.pages import FIRST, PAGES

_STREAMLITS = Path(streamlit.__file__).parent / "static" / "index.html"
_SCRIPT = """
      window.__streamlit = {
        BACKEND_BASE_URL: location.origin + location.pathname.replace(/[^/]*$/, ""),
      }
    """


@cache
def start_page() -> str:
    """Return the start page of a link; the server is at the folder of its address."""
    script = f"<script>{_SCRIPT}</script>"
    return _STREAMLITS.read_text().replace("<head>", f"<head>\n    {script}", 1)


def page_routes() -> list[Route]:
    """Return a route for each page's name."""
    others = [Route(f"/{name}", _start) for name in PAGES if name != FIRST]
    return [Route(f"/{FIRST}", _to_first), *others]


def _start(_: Request) -> HTMLResponse:
    return HTMLResponse(start_page(), headers={"Cache-Control": "no-cache"})


def _to_first(request: Request) -> RedirectResponse:
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"./{query}")
