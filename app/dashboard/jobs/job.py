"""Long work on processes that all users share; each job belongs to the session of one user.

A job has at most as many items under way as there are processes, so that jobs take turns; searches
have processes of their own, for one of them lasts longer than a page should wait.
"""

import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from threading import RLock
from typing import Any, Generic, TypeVar

import streamlit as st

from servetwin.app.dashboard.jobs.process_pool import Stopped, Work, shared_pool
from servetwin.app.dashboard.jobs.shared_results import RESULTS
from servetwin.app.dashboard.widgets import draw_every, end_if_stale
from servetwin.sim.experiments.parallel_map import LostItems, numbered
from servetwin.workloads.errors import ServetwinError

Item = TypeVar("Item")
Result = TypeVar("Result")

_POLL_EVERY_S, _LOOK_EVERY_S = 0.5, 0.05
_JOBS = "jobs"


class Job(Generic[Item, Result]):
    """``function`` applied to every item; ``results`` come by the item's place, as they end.

    ``note`` says what it is for. A job stops once nothing refers to it any more. An item that has
    one of ``keys`` (its kind, and all that it depends on) is computed once for all sessions.
    """

    def __init__(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        keys: Sequence[Hashable] = (),
        work: Work = "figures",
    ) -> None:
        self.note: Any = None
        self.items = items
        # The error that ended it early.
        self.problem: str | None = None
        self.was_stopped = False
        self._function = function
        self._keys = dict(enumerate(keys))
        self._results: dict[int, Result] = RESULTS.of(self._keys)
        self._waiting = [each for each in enumerate(items) if each[0] not in self._results][::-1]
        self._under_way = 0
        self._lock = RLock()
        self._pool = shared_pool(work)
        self._flag = self._pool.free_flag()
        if self._waiting:
            self._forgotten = weakref.finalize(self, self._pool.stop, self._flag)
        self._go_on()

    @property
    def results(self) -> dict[int, Result]:
        """Return the results so far, by place."""
        return dict(sorted(self._results.copy().items()))

    @property
    def is_running(self) -> bool:
        """Return whether results may still come."""
        with self._lock:
            return bool(self._under_way or self._waiting)

    def stop(self) -> None:
        """Begin no more items and end the running ones; results stay."""
        with self._lock:
            self.was_stopped = self.was_stopped or self.is_running
            self._waiting.clear()
            if self._under_way:
                self._pool.stop(self._flag)

    def _go_on(self) -> None:
        """Submit items without the lock: an item that ends at once calls back."""
        while work := self._next():
            place, item = work
            try:
                future = self._pool.submit(self._flag, self._function, item)
            except RuntimeError as error:  # the dashboard ends
                self._end(error)
            else:
                future.add_done_callback(partial(_take, weakref.ref(self), place))

    def _next(self) -> tuple[int, Item] | None:
        with self._lock:
            if not self._waiting or self._under_way >= self._pool.processes:
                return None
            self._under_way += 1
            return self._waiting.pop()

    def take(self, place: int, future: "Future[Result]") -> None:
        """Take the result of an item that has ended, and begin the next."""
        try:
            result = self._results[place] = future.result()
        except (Stopped, CancelledError):
            self._end(None)
        except BrokenProcessPool:
            self._end(LostItems([place], numbered))
        except Exception as error:
            self._end(error)
        else:
            if key := self._keys.get(place):
                RESULTS.keep(key, result)
            self._end(None)
            self._go_on()

    def _end(self, error: Exception | None) -> None:
        """Count one item less under way; after an error begin no other."""
        with self._lock:
            self._under_way -= 1
            if error is not None:
                self.problem = self.problem or str(error)
                self.stop()
            if not self.is_running:
                self._forgotten.detach()


def _take(job: "weakref.ref[Job[Any, Any]]", place: int, future: "Future[Any]") -> None:
    if kept := job():
        kept.take(place, future)


def job_of(name: str, note: Any, begin: Callable[[], "Job[Item, Result]"]) -> "Job[Item, Result]":
    """Return this session's job ``name``; where its note is another, stop it and begin one."""
    before = find_job(name)
    if before is not None and before.note == note:
        return before
    if before is not None:
        before.stop()
    job = _jobs()[name] = begin()
    job.note = note
    return job


def find_job(name: str) -> "Job[Any, Any] | None":
    """Return this session's job of that name, running or not."""
    return _jobs().get(name)


def forget_job(name: str) -> None:
    """Forget this session's job of that name; results that have keys are kept."""
    _jobs().pop(name, None)


def progress_of(job: "Job[Any, Any]") -> Iterator[int]:
    """Yield how many results there are, until all are; end with the session's run of the script.

    Raises ``ServetwinError`` where a process fails.
    """
    done = 0
    while job.is_running:
        time.sleep(_LOOK_EVERY_S)
        end_if_stale()
        if len(job.results) > done:
            done = len(job.results)
            yield done
    if job.problem:
        raise ServetwinError(job.problem)


def watch_job(name: str, draw: Callable[["Job[Any, Any]"], None]) -> None:
    """Draw the job ``name`` where there is one.

    While it runs it is drawn twice a second, with its progress and a button that stops it.
    """
    job = find_job(name)
    if job is None:
        return
    if not job.is_running:
        _ending(name, job)
        draw(job)
        return

    def follow() -> None:
        if not job.is_running:
            st.rerun()
        _progress(name, job)
        draw(job)

    draw_every(_POLL_EVERY_S, follow)


def _progress(name: str, job: "Job[Any, Any]") -> None:
    done, total = len(job.results), len(job.items)
    bar, button = st.columns([5, 1], vertical_alignment="bottom")
    bar.progress(done / max(total, 1), f"{done} of {total} simulated")
    button.button("Stop", key=f"{name}_stop", on_click=job.stop, width="stretch")


def _ending(name: str, job: "Job[Any, Any]") -> None:
    if job.problem:
        st.error(job.problem)
    elif job.was_stopped:
        st.info(f"Stopped: {len(job.results)} of {len(job.items)} simulated.")
        st.button("Go on", key=f"{name}_go_on", on_click=forget_job, args=(name,))


def _jobs() -> dict[str, "Job[Any, Any]"]:
    jobs: dict[str, Job[Any, Any]] = st.session_state.setdefault(_JOBS, {})
    return jobs
