"""Effects of techniques: measured in the background, kept for all users."""

from collections.abc import Sequence

import streamlit as st

from servetwin.app.dashboard.jobs.job import Job, find_job, start_job
from servetwin.app.dashboard.techniques import effects
from servetwin.app.dashboard.techniques.data_sheet_server import DataSheetServer
from servetwin.app.dashboard.widgets import keep_newest
from servetwin.sim.techniques.effects import Effect

JOB = "techniques"
_MOST_KEPT = 2_000


def begin(server: DataSheetServer, texts: Sequence[str]) -> None:
    """Begin to measure the techniques of ``texts`` that are not measured yet."""
    known = measured(server)
    if items := [(server, text) for text in texts if text not in known]:
        start_job(JOB, effects.measure, items, note=server)


def begin_with_the_dozen(server: DataSheetServer) -> None:
    """Measure the chosen dozen on a server on which nothing was begun, so that no page is empty."""
    if job_of(server) is None:
        begin(server, effects.dozen(server))


def job_of(server: DataSheetServer) -> "Job[effects.Item, Effect] | None":
    """Return this session's job where it measures ``server``; one of another server is stopped."""
    job = find_job(JOB)
    if job is None or job.note == server:
        return job
    job.stop()
    return None


def measured(server: DataSheetServer) -> dict[str, Effect]:
    """Return the known effects on a server, by technique text, and keep them for all users."""
    job = job_of(server)
    if job is not None:
        found = {job.items[place]: effect for place, effect in job.results.items()}
        keep_newest(_kept(), found, _MOST_KEPT)
    return {text: effect for (of, text), effect in list(_kept().items()) if of == server}


@st.cache_resource
def _kept() -> dict[effects.Item, Effect]:
    return {}
