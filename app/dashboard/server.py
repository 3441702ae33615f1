"""The dashboard's server, as ``streamlit run`` starts it: Streamlit's own application, guarded, and
warm before it listens."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread
from starlette.middleware import Middleware
from streamlit.starlette import App

from servetwin.app.dashboard.jobs.process_pool import shared_pool
from servetwin.app.dashboard.jobs.simulated_items import Replication, simulate_replication
from servetwin.app.dashboard.pages import PAGES, drawing
from servetwin.app.dashboard.pictures import picture_routes
from servetwin.app.dashboard.security_headers import SecurityHeaders
from servetwin.app.dashboard.start_page import page_routes
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.sim.experiments.predict import run_once


def warm_up() -> None:
    """Load the pages, simulate once, and await the first process, which has done the same: who
    opens the page has the processors for it.

    What is loaded stays: the garbage collector need not look at it again, which would take a tenth
    of a second at a time.
    """
    pool = shared_pool()
    file = ScenarioFile()
    process = pool.submit(pool.free_flag(), simulate_replication, Replication(file, 0, False))
    for name in PAGES:
        drawing(name)
    trace = file.workload.trace(file.seed)
    run_once(trace, file.build(trace), seed=file.seed).summary(file.slo.slo())
    process.result()
    gc.collect()
    gc.freeze()


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
