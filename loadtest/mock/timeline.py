"""When things are due: one heap of absolute times, one timer."""

import asyncio
import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Timeline:
    """Calls at times of ``time.perf_counter_ns``, in their order, never early.

    A late call makes no other late: each has its own time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ns = 0

    def at(self, due_ns: int, call: Callable[[], None]) -> None:
        """Call when ``due_ns`` has come; equal times keep their order."""
        heappush(self._due, (due_ns, next(self._order), call))
        if self._timer is None or due_ns < self._armed_ns:
            self._arm()

    def clear(self) -> None:
        """Forget everything."""
        self._due.clear()
        if self._timer:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._armed_ns = self._due[0][0]
        left_s = (self._armed_ns - time.perf_counter_ns()) / 1e9
        self._timer = self._loop.call_later(max(0.0, left_s), self._wake)

    def _wake(self) -> None:
        self._armed_ns = 0  # nothing that comes meanwhile needs a timer of its own
        now_ns = time.perf_counter_ns()
        while self._due and self._due[0][0] <= now_ns:
            heappop(self._due)[2]()
        self._timer = None
        if self._due:
            self._arm()
