"""Long work on processes that all users share, each user's jobs in its own session.

A job has at most as many items under way as there are processes, so that jobs take turns. ``stop``
begins nothing more, and what runs ends within a tenth of a second: its process looks at the job's
flag on a timer.
"""

import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import count
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Lock, RLock, Thread
from types import FrameType, ModuleType
from typing import Any, Generic, TypeVar

import streamlit as st

Item = TypeVar("Item")
Result = TypeVar("Result")

_FLAGS = 1024
"""Jobs at a time; one more shares the flag of the oldest."""
_LOOK_EVERY_S = 0.1
_POLL_EVERY_S = 0.5
_JOBS = "jobs"


class Job(Generic[Item, Result]):
    """``function`` of every item; ``results`` by the item's place, as they end.

    ``note`` is whatever the page wants to find beside them later. A job that nobody holds any more
    stops.
    """

    def __init__(
        self, function: Callable[[Item], Result], items: Sequence[Item], note: Any = None
    ) -> None:
        self.note = note
        self.items = items
        self._feed = _Feed(function, items)
        weakref.finalize(self, self._feed.stop)
        self._feed.go_on()

    @property
    def results(self) -> dict[int, Result]:
        """What has ended so far."""
        return dict(sorted(self._feed.results.items()))

    @property
    def is_running(self) -> bool:
        """Whether results may still come."""
        return self._feed.under_way > 0

    @property
    def was_stopped(self) -> bool:
        """Whether it ended before its end."""
        return self._feed.stopped

    @property
    def problem(self) -> str | None:
        """Why it ended before its end, where nobody stopped it."""
        return self._feed.problem

    def stop(self) -> None:
        """Begin nothing more and end what runs; results stay."""
        self._feed.stop()


def start_job(
    name: str, function: Callable[[Item], Result], items: Sequence[Item], note: Any = None
) -> "Job[Item, Result]":
    """Begin this session's job ``name``; one of that name that runs is stopped.

    ``function`` and ``items`` travel to other processes: a function of a module, plain data.
    """
    if before := find_job(name):
        before.stop()
    job = Job(function, items, note)
    _jobs()[name] = job
    return job


def find_job(name: str) -> "Job[Any, Any] | None":
    """This session's job of that name, running or not."""
    return _jobs().get(name)


def watch_job(name: str, draw: Callable[["Job[Any, Any]"], None]) -> None:
    """Draw the job ``name`` where there is one; while it runs, again and again, with its progress
    and a button that stops it."""
    job = find_job(name)
    if job is None:
        return
    if not job.is_running:
        _ending(job)
        draw(job)
        return

    @st.fragment(run_every=_POLL_EVERY_S)
    def follow() -> None:
        if not job.is_running:
            st.rerun()
        _progress(name, job)
        draw(job)

    follow()


def _progress(name: str, job: "Job[Any, Any]") -> None:
    done, total = len(job.results), len(job.items)
    bar, button = st.columns([5, 1], vertical_alignment="bottom")
    bar.progress(done / max(total, 1), f"{done} of {total} simulated")
    button.button("Stop", key=f"{name}_stop", on_click=job.stop, width="stretch")


def _ending(job: "Job[Any, Any]") -> None:
    if job.problem:
        st.error(job.problem)
    elif job.was_stopped:
        st.info(f"Stopped: {len(job.results)} of {len(job.items)} simulated.")


def _jobs() -> dict[str, "Job[Any, Any]"]:
    found: dict[str, Job[Any, Any]] = st.session_state.setdefault(_JOBS, {})
    return found


class _Feed:
    """Keeps the processes busy with one job; called from the threads of the session and pool."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self.results: dict[int, Any] = {}
        self.problem: str | None = None
        self.stopped = False
        self.under_way = 0
        self._function = function
        self._waiting = list(enumerate(items))[::-1]
        self._lock = RLock()
        self._pool = _shared_pool()
        self._flag = self._pool.free_flag()

    def stop(self) -> None:
        with self._lock:
            self.stopped = self.stopped or bool(self.under_way or self._waiting)
            self._waiting.clear()
            if self.under_way:
                self._pool.flags[self._flag] = 1

    def go_on(self) -> None:
        with self._lock:
            while self._waiting and self.under_way < self._pool.processes:
                place, item = self._waiting.pop()
                try:
                    future = self._pool.submit(self._flag, self._function, item)
                except RuntimeError as error:  # the pool has ended
                    self._fail(f"the simulation cannot run: {error}")
                    return
                self.under_way += 1
                future.add_done_callback(partial(self._take, place))

    def _take(self, place: int, future: "Future[Any]") -> None:
        with self._lock:
            self.under_way -= 1
            try:
                self.results[place] = future.result()
            except (_Stopped, CancelledError):
                pass
            except BrokenProcessPool:
                _forget_pool(self._pool)
                self._fail("a simulating process ended, perhaps for lack of memory; ask for less")
            except Exception as error:
                self._fail(str(error))
            self.go_on()

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem
        self.stop()


class _Pool:
    """The processes and the flags by which their work is stopped."""

    def __init__(self) -> None:
        context = _Context()
        self.processes = max(1, (os.cpu_count() or 2) - 1)
        self.flags = context.RawArray("b", _FLAGS)
        self._numbers = count()
        self._executor = ProcessPoolExecutor(self.processes, context, _begin, (self.flags,))

    def free_flag(self) -> int:
        flag = next(self._numbers) % _FLAGS
        self.flags[flag] = 0
        return flag

    def submit(self, flag: int, function: Callable[[Any], Any], item: Any) -> "Future[Any]":
        return self._executor.submit(_stoppable, flag, function, item)


_pools: list[_Pool] = []
"""The one that works, once there is one."""
_starting = Lock()


def _shared_pool() -> _Pool:
    with _starting:
        if not _pools:
            _pools.append(_Pool())
        return _pools[0]


def _forget_pool(pool: _Pool) -> None:
    """A broken one; the next job starts another."""
    with _starting:
        if pool in _pools:
            _pools.remove(pool)


class _Process(SpawnProcess):
    """A process that does not run the page's script: Streamlit puts that in ``__main__``."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _nothing_in_main():
            return SpawnProcess._Popen(process_obj)


class _Context(SpawnContext):
    Process = _Process


@contextmanager
def _nothing_in_main() -> Iterator[None]:
    before, empty = sys.modules["__main__"], ModuleType("__main__")
    sys.modules["__main__"] = empty
    try:
        yield
    finally:
        if sys.modules["__main__"] is empty:
            sys.modules["__main__"] = before


class _Stopped(Exception):
    """Its job was stopped."""


_flags: Any = None
"""In a process: the flags of the jobs."""


def _begin(flags: Any) -> None:
    global _flags
    _flags = flags
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the dashboard
    Thread(target=_end_with, args=(parent_process(),), daemon=True).start()


def _end_with(dashboard: Any) -> None:
    """Not to be left alone where the dashboard is killed."""
    dashboard.join()
    os._exit(1)


def _stoppable(flag: int, function: Callable[[Any], Any], item: Any) -> Any:
    with _watching(flag):
        return function(item)


@contextmanager
def _watching(flag: int) -> Iterator[None]:
    def look(_: int, __: FrameType | None) -> None:
        if _flags[flag]:
            raise _Stopped

    signal.signal(signal.SIGALRM, look)
    look(0, None)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_EVERY_S, _LOOK_EVERY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
