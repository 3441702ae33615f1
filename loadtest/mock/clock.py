"""The time of a mock: a clock that freezes stop, and waits until absolute times."""

import asyncio
import time
from asyncio import Future
from collections.abc import Iterable
from typing import Any

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


async def wait_until(due_ns: int, left: Future[Any]) -> bool:
    """Wait until ``time.perf_counter_ns`` is ``due_ns``, never less.

    Return early where the client has ``left``, and whether it is still there.
    """
    while not left.done() and (wait_ns := due_ns - time.perf_counter_ns()) > 0:
        await asyncio.wait([left], timeout=wait_ns / 1e9)
    return not left.done()
