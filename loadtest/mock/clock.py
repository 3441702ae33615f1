"""The time of a mock: a clock that freezes stop, and calls at absolute times."""

import asyncio
import time
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count

from servetwin.loadtest.mock.faults import Freeze


class ServerClock:
    """Converts between ``time.perf_counter_ns`` and the server's own time, which freezes stop.

    Freezes count from ``start``; before it, both times are the same.
    """

    def __init__(self, freezes: Iterable[Freeze]) -> None:
        self._frozen_ns: list[tuple[int, int]] = []
        end_ns = 0
        for freeze in sorted(freezes, key=lambda freeze: freeze.at_s):
            start_ns = max(end_ns, round(freeze.at_s * 1e9))
            end_ns = max(start_ns, round((freeze.at_s + freeze.for_s) * 1e9))
            self._frozen_ns.append((start_ns, end_ns))
        self._zero_ns: int | None = None

    def start(self, now_ns: int) -> None:
        """Start the clock at the first request; later calls change nothing."""
        if self._zero_ns is None:
            self._zero_ns = now_ns

    def due_ns(self, arrival_ns: int, after_s: float) -> int:
        """Return when the server's own time is ``after_s`` later than it was at ``arrival_ns``."""
        after_ns = round(after_s * 1e9)
        if self._zero_ns is None:
            return arrival_ns + after_ns
        lived_ns = self._lived_ns(arrival_ns - self._zero_ns)
        return self._zero_ns + self._passed_ns(lived_ns + after_ns)

    def _lived_ns(self, passed_ns: int) -> int:
        begun = (span for span in self._frozen_ns if span[0] < passed_ns)
        return passed_ns - sum(min(passed_ns, end_ns) - start_ns for start_ns, end_ns in begun)

    def _passed_ns(self, lived_ns: int) -> int:
        for start_ns, end_ns in self._frozen_ns:
            if lived_ns >= start_ns:
                lived_ns += end_ns - start_ns
        return lived_ns


class Timeline:
    """Calls functions at times of ``time.perf_counter_ns``, in their order, never early.

    One heap of absolute times and one timer: a late call makes no other late.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ns = 0

    def at(self, due_ns: int, call: Callable[[], None]) -> None:
        """Add a call at ``due_ns``; equal times keep their order."""
        heappush(self._due, (due_ns, next(self._order), call))
        if self._timer is None or due_ns < self._armed_ns:
            self._arm()

    def clear(self) -> None:
        """Drop every call."""
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
        self._armed_ns = 0  # a call that is added meanwhile needs no timer of its own
        now_ns = time.perf_counter_ns()
        while self._due and self._due[0][0] <= now_ns:
            heappop(self._due)[2]()
        self._timer = None
        if self._due:
            self._arm()
