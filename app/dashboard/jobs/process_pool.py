"""The processes that simulate for all users of a dashboard; their work can be stopped.

Each job has a flag. A process looks at the flag on a timer, and ends the work within a tenth of a
second. A process that is killed is replaced, and no other item suffers.
Streamlit is not loaded in these processes.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import count
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Lock, local
from types import FrameType, ModuleType
from typing import Any, Literal

from servetwin.sim.experiments.parallel_map import TRIES, end_with_parent

# Most jobs at a time; one more would share the flag of the oldest.
_FLAGS = 1024
_LOOK_EVERY_S = 0.1
# What a page waits for; or searches of many simulations, which must not hold that up.
Work = Literal["figures", "search"]
# First answers, which the dashboard's own process computes, come before both.
_NICENESS: dict[Work, int] = {"figures": 5, "search": 10}


class Pool:
    """The processes of one kind of work, and the flags by which it is stopped."""

    def __init__(self, work: Work) -> None:
        self._niceness = _NICENESS[work]
        self.processes = max(1, (os.cpu_count() or 2) - 1)
        self.flags = _Context().RawArray("b", _FLAGS)
        self._numbers = count()
        self._of_thread = local()
        self._threads = ThreadPoolExecutor(self.processes, initializer=self._begin_process)

    def free_flag(self) -> int:
        """Return the flag of a new job."""
        flag = next(self._numbers) % _FLAGS
        self.flags[flag] = 0
        return flag

    def stop(self, flag: int) -> None:
        """End what runs under a flag."""
        self.flags[flag] = 1

    def submit(self, flag: int, function: Callable[[Any], Any], item: Any) -> "Future[Any]":
        """Run ``function(item)`` in a process; it raises ``Stopped`` once the flag is set.

        A process has one item at a time; one that is killed is begun again, ``TRIES`` times in all,
        then the future raises ``BrokenProcessPool``.
        """
        return self._threads.submit(self._compute, flag, function, item)

    def _compute(self, flag: int, function: Callable[[Any], Any], item: Any) -> Any:
        for tries_left in reversed(range(TRIES)):
            try:
                return self._of_thread.process.submit(_stoppable, flag, function, item).result()
            except BrokenProcessPool:
                self._begin_process()
                if not tries_left:
                    raise

    def _begin_process(self) -> None:
        executor = ProcessPoolExecutor(1, _Context(), _begin, (self.flags, self._niceness))
        self._of_thread.process = executor


# The pools of this dashboard that there are so far.
_pools: dict[Work, Pool] = {}
_starting, _spawning = Lock(), Lock()


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
        with _spawning, _nothing_in_main():
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


# In a process: the flags of the jobs.
_flags: Any = None


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
