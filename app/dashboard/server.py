"""The dashboard's server, as ``streamlit run`` starts it: Streamlit's own application, guarded, and
warm before it listens."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread
from starlette.middleware import Middleware
from streamlit.starlette import App

from servetwin.app.dashboard.pictures.picture_routes import picture_routes
from servetwin.app.dashboard.security_headers import SecurityHeaders
from servetwin.app.dashboard.start_page import page_routes
from servetwin.app.dashboard.warm_up import warm_up


@asynccontextmanager
async def _warm(_: App) -> AsyncIterator[None]:
    await to_thread.run_sync(warm_up)
    yield


app = App(
    Path(__file__).with_name("main.py"),
    routes=[*picture_routes(), *page_routes()],
    middleware=[Middleware(SecurityHeaders)],
    lifespan=_warm,
)
