"""Measuring techniques as a job; what was found is kept for all users."""

from collections.abc import Sequence

import streamlit as st

from app.dashboard.jobs.jobs import Job, find_job, start_job
from app.dashboard.techniques.effects import measure
from app.dashboard.techniques.subject import Subject
from sim.techniques.effects import Effect

JOB = "techniques"
_MOST_KEPT = 2_000

Item = tuple[Subject, str]


def start(subject: Subject, texts: Sequence[str]) -> None:
    """Begin to measure those of ``texts`` that nobody has measured yet."""
    known = measured(subject)
    items = [(subject, text) for text in texts if text not in known]
    start_job(JOB, measure_item, items, note=subject)


def measure_item(item: Item) -> Effect:
    """What a process of the job does."""
    return measure(*item)


def job_of(subject: Subject) -> "Job[Item, Effect] | None":
    """This session's job where it measures ``subject``; one of another server is stopped."""
    job = find_job(JOB)
    if job is None or job.note == subject:
        return job
    job.stop()
    return None


def measured(subject: Subject) -> dict[str, Effect]:
    """The effects that are known of a server, by technique text."""
    job = job_of(subject)
    if job is not None:
        _keep({job.items[place]: effect for place, effect in job.results.items()})
    return {text: effect for (of, text), effect in list(_kept().items()) if of == subject}


def _keep(found: dict[Item, Effect]) -> None:
    kept = _kept()
    kept.update(found)
    while len(kept) > _MOST_KEPT:
        kept.pop(next(iter(kept)), None)


@st.cache_resource
def _kept() -> dict[Item, Effect]:
    """Effects never change: the same for everybody."""
    return {}
