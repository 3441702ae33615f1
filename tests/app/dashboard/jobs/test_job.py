"""Jobs: results by place, stop, failure, taking turns; and no page in a worker."""

import gc
import os
import signal
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

import streamlit as st

from servetwin.app.dashboard.jobs.job import Job, find_job, job_of
from tests.support.killed_items import killed_at_first, own_pid


def wait(condition: Callable[[], bool], within_s: float = 300.0) -> None:
    until_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.01)


def ended(job: Job[Any, Any]) -> Job[Any, Any]:
    wait(lambda: not job.is_running)
    return job


def test_results_come_by_place() -> None:
    job = ended(Job(int, ["7", "8", "9"]))
    assert job.results == {0: 7, 1: 8, 2: 9}
    assert (job.problem, job.was_stopped) == (None, False)


def test_stop_ends_what_runs_and_begins_nothing_more() -> None:
    job: Job[Any, Any] = Job(time.sleep, [0.0, 600.0, 600.0])
    wait(lambda: len(job.results) == 1)
    job.stop()
    ended(job)
    assert (job.results, job.was_stopped, job.problem) == ({0: None}, True, None)
    assert ended(Job(int, ["1"])).results == {0: 1}  # the processes are there for others


def test_figures_come_while_a_search_computes() -> None:
    """The item of a search lasts as long as it likes: what a page waits for goes on beside it."""
    search: Job[Any, Any] = Job(time.sleep, [600.0] * 64, work="search")
    assert ended(Job(int, ["7"])).results == {0: 7}
    assert (search.is_running, search.results) == (True, {})
    search.stop()
    ended(search)


def test_a_failure_is_the_jobs_own() -> None:
    job = ended(Job(int, ["1", "one"]))
    assert job.results == {0: 1}
    assert job.problem == "invalid literal for int() with base 10: 'one'"
    assert ended(Job(int, ["2"])).problem is None


@pytest.mark.slow
def test_a_process_that_dies_in_every_try_ends_its_job_alone() -> None:
    other: Job[Any, Any] = Job(time.sleep, [0.01] * 200)
    job = ended(Job(os._exit, [1]))
    assert job.problem == (
        "item 1: the process was killed in each of 3 tries, perhaps for lack of memory"
    )
    assert (ended(other).problem, len(other.results)) == (None, 200)
    assert ended(Job(int, ["3"])).results == {0: 3}


def test_what_a_killed_process_computed_is_computed_again(tmp_path: Path) -> None:
    (tmp_path / "second").touch()
    job = ended(Job(killed_at_first, [tmp_path / "first", tmp_path / "second"]))
    assert (job.problem, job.results) == (None, {0: "first", 1: "second"})


def test_an_idle_process_that_is_killed_is_replaced() -> None:
    (pid,) = ended(Job(own_pid, [None])).results.values()
    os.kill(pid, signal.SIGKILL)
    assert ended(Job(int, ["4"])).results == {0: 4}


def test_jobs_take_turns() -> None:
    long: Job[Any, Any] = Job(time.sleep, [0.05] * 400)
    short = Job(int, ["1", "2"])
    ended(short)
    assert len(short.results) == 2
    assert long.is_running
    long.stop()
    ended(long)


def test_a_job_that_nobody_holds_stops() -> None:
    job: Job[Any, Any] = Job(time.sleep, [600.0] * 50)
    reference = weakref.ref(job)
    del job
    gc.collect()
    assert reference() is None
    assert ended(Job(int, ["5"])).results == {0: 5}  # its processes are free for others


def test_a_session_keeps_a_job_as_long_as_its_note_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(st, "session_state", {})
    first: Job[Any, Any] = job_of("mine", "a", lambda: Job(time.sleep, [600.0]))
    assert job_of("mine", "a", lambda: Job(int, ["1"])) is first
    other: Job[str, int] = job_of("mine", "b", lambda: Job(int, ["1"]))
    assert (first.was_stopped, find_job("mine"), other.note) == (True, other, "b")
    assert ended(other).results == {0: 1}


def test_nothing_to_do_is_done() -> None:
    job: Job[Any, Any] = Job(int, [])
    assert (job.is_running, job.results) == (False, {})
