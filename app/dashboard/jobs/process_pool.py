"""The processes that simulate for all users of a dashboard; their work can be stopped.

Each job has a flag. A process looks at the flag on a timer, and ends the work within a tenth of a
second. When a process is killed, all of them are replaced, since their common queue is lost.
Streamlit is not loaded in these processes.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import count
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Lock
from types import FrameType, ModuleType
from typing import Any, Literal

from servetwin.sim.experiments.parallel_map import end_with_parent

_FLAGS = 1024
"""Most jobs at a time; one more would share the flag of the oldest."""
_LOOK_EVERY_S = 0.1
Work = Literal["figures", "search"]
"""What a page waits for; or searches of many simulations, which must not hold that up."""
_NICENESS: dict[Work, int] = {"figures": 5, "search": 10}
"""First answers, which the dashboard's own process computes, come before both."""


class Pool:
    """The processes of one kind of work, and the flags by which it is stopped."""

    def __init__(self, work: Work) -> None:
        self._niceness = _NICENESS[work]
        self.processes = max(1, (os.cpu_count() or 2) - 1)
        self.flags = _Context().RawArray("b", _FLAGS)
        self._numbers = count()
        self._executor = self._begun(self.processes)
        self._renewing = Lock()

    def free_flag(self) -> int:
        """Return the flag of a new job."""
        flag = next(self._numbers) % _FLAGS
        self.flags[flag] = 0
        return flag

    def submit(self, flag: int, function: Callable[[Any], Any], item: Any) -> "Future[Any]":
        """Run ``function(item)`` in a process; it raises ``Stopped`` once the flag is set."""
        executor = self._executor
        try:
            future = executor.submit(_stoppable, flag, function, item)
        except BrokenProcessPool:
            self._renew(executor)
            return self.submit(flag, function, item)
        future.add_done_callback(partial(self._renew_if_broken, executor))
        return future

    def submit_alone(self, flag: int, function: Callable[[Any], Any], item: Any) -> "Future[Any]":
        """Run it in a fresh process, which no other item can break, and which ends with it."""
        executor = self._begun(1)
        future = executor.submit(_stoppable, flag, function, item)
        executor.shutdown(wait=False)
        return future

    def _begun(self, processes: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(processes, _Context(), _begin, (self.flags, self._niceness))

    def _renew_if_broken(self, executor: ProcessPoolExecutor, future: "Future[Any]") -> None:
        """Replace the processes before the job learns of the death: it may submit at once."""
        if not future.cancelled() and isinstance(future.exception(), BrokenProcessPool):
            self._renew(executor)

    def _renew(self, broken: ProcessPoolExecutor) -> None:
        with self._renewing:
            if self._executor is broken:
                self._executor = self._begun(self.processes)


_pools: dict[Work, Pool] = {}
"""The pools of this dashboard that there are so far."""
_starting = Lock()


def shared_pool(work: Work = "figures") -> Pool:
    """Return the pool of this dashboard for a kind of work, started on the first call."""
    with _starting:
        if work not in _pools:
            _pools[work] = Pool(work)
        return _pools[work]


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


class Stopped(Exception):
    """The work ended because its job was stopped."""


_flags: Any = None
"""In a process: the flags of the jobs."""


def _begin(flags: Any, niceness: int) -> None:
    global _flags
    _flags = flags
    os.nice(niceness)
    end_with_parent()


def _stoppable(flag: int, function: Callable[[Any], Any], item: Any) -> Any:
    def look(_: int, __: FrameType | None) -> None:
        if _flags[flag]:
            raise Stopped

    signal.signal(signal.SIGALRM, look)
    look(0, None)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_EVERY_S, _LOOK_EVERY_S)
    try:
        return function(item)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
