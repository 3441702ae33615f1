"""Measuring techniques as a job; what was found is kept for all users."""

from collections.abc import Sequence

import streamlit as st

from app.dashboard.jobs.job import Job, find_job, start_job
from app.dashboard.techniques.data_sheet_server import DataSheetServer
from app.dashboard.techniques.effects import measure
from sim.techniques.effects import Effect

JOB = "techniques"
_MOST_KEPT = 2_000

Item = tuple[DataSheetServer, str]


def start(server: DataSheetServer, texts: Sequence[str]) -> None:
    """Begin to measure those of ``texts`` that nobody has measured yet."""
    known = measured(server)
    items = [(server, text) for text in texts if text not in known]
    start_job(JOB, measure_item, items, note=server)


def measure_item(item: Item) -> Effect:
    """What a process of the job does."""
    return measure(*item)


def job_of(server: DataSheetServer) -> "Job[Item, Effect] | None":
    """This session's job where it measures ``subject``; one of another server is stopped."""
    job = find_job(JOB)
    if job is None or job.note == server:
        return job
    job.stop()
    return None


def measured(server: DataSheetServer) -> dict[str, Effect]:
    """The effects that are known of a server, by technique text."""
    job = job_of(server)
    if job is not None:
        _keep({job.items[place]: effect for place, effect in job.results.items()})
    return {text: effect for (of, text), effect in list(_kept().items()) if of == server}


def _keep(found: dict[Item, Effect]) -> None:
    kept = _kept()
    kept.update(found)
    while len(kept) > _MOST_KEPT:
        kept.pop(next(iter(kept)), None)


@st.cache_resource
def _kept() -> dict[Item, Effect]:
    """Effects never change: the same for everybody."""
    return {}
