"""Buttons that save a chart as a picture, drawn by the browser, not by the server.

``pictures.js`` takes the chart as it stands on the page, the layout for a talk from the buttons,
and the address of the page as the link. The server has that script, and plotly.js beside it.
"""

import json
import re
import time
from html import escape
from pathlib import Path
from threading import Event
from uuid import uuid4
from weakref import WeakValueDictionary

import plotly  # type: ignore[import-untyped]
import streamlit as st
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from servetwin.app.dashboard.widgets import end_if_stale
from servetwin.app.figures import pictures
from servetwin.app.figures.canvas import Figure
from servetwin.app.words import asset

SCRIPT = "pictures/pictures.js"
# Where the server has the script, and plotly.js beside it: relative to a page.
LIBRARY = "pictures/plotly.min.js"
_ADDRESS = "{link}"
_KINDS = {"svg": "SVG", "png": "PNG"}


_SHOWN = "page_shown"
# Of sessions: set once the browser asks for the script, and so shows what came before it.
_shown: WeakValueDictionary[str, Event] = WeakValueDictionary()
# Longest that a browser is given to show the first figures.
_FIRST_PAGE_S, _LOOK_EVERY_S = 3.0, 0.01


def load_picture_script() -> None:
    """Put the script that the buttons need into the page, and their style."""
    token, shown = st.session_state.setdefault(_SHOWN, (uuid4().hex, Event()))
    _shown[token] = shown
    themes = json.dumps({name: theme.spec() for name, theme in pictures.THEMES.items()})
    given = f'data-themes="{escape(themes)}" data-png-width="{pictures.PNG_WIDTH_PX}"'
    st.html(f"<style>{asset('pictures.css')}</style>")
    st.html(f'<script src="{SCRIPT}?{token}" {given}></script>', unsafe_allow_javascript=True)


def await_first_page() -> None:
    """Wait until the browser shows what it got first, which the script of the charts, 500 times as
    large as that of a figure, would hold up."""
    _, shown = st.session_state.get(_SHOWN, ("", None))
    given_up_s = time.monotonic() + _FIRST_PAGE_S
    while shown and not shown.wait(_LOOK_EVERY_S):
        end_if_stale()
        if time.monotonic() > given_up_s:
            shown.set()


def picture_buttons(figure: Figure, key: str, source: str) -> str:
    """Return the buttons of the chart ``key`` as HTML: SVG and PNG, light and dark."""
    layout = pictures.talk_layout(figure, pictures.Caption(source, _ADDRESS))
    letters = pictures.letters_in_line(layout["width"], layout["title"]["subtitle"]["font"]["size"])
    picture = json.dumps({"layout": layout, "letters": letters})
    title = figure.title
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:80]
    buttons = "".join(
        f'<button type="button" data-kind="{kind}" data-theme="{theme}">{label}, {theme}</button>'
        for kind, label in _KINDS.items()
        for theme in pictures.THEMES
    )
    given = {"chart": key, "picture": picture, "name": name}
    attributes = " ".join(f'data-{part}="{escape(value)}"' for part, value in given.items())
    hidden = 'style="visibility: hidden"'  # until ``pictures.js`` is there, which shows them
    return f"<div {attributes} {hidden}><p>{escape(title)}</p>{buttons}<output></output></div>"


_PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
_JAVASCRIPT = "text/javascript"


def picture_routes() -> list[Route]:
    """Return the routes."""
    return [Route(f"/{SCRIPT}", _script), Route(f"/{LIBRARY}", _library)]


def _script(request: Request) -> Response:
    if shown := _shown.get(request.url.query):
        shown.set()
    return Response(asset("recoloured.js") + asset("pictures.js"), media_type=_JAVASCRIPT)


def _library(_: Request) -> Response:
    return FileResponse(_PLOTLY_JS, media_type=_JAVASCRIPT)
