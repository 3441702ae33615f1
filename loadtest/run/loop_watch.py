"""Is the client itself late? A watch on the event loop, and quiet from the garbage collector."""

import asyncio
import gc
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager


class LoopWatch:
    """A chain of 5 ms timers; how late each one wakes is how late a stamp can be.

    Not by the loop's own time, which some loops read only once per turn.
    """

    def __init__(self, period_s: float = 0.005) -> None:
        self._period_s = period_s
        self._handle: asyncio.TimerHandle | None = None
        self.oversleeps_s = array("d")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch the running event loop."""
        self._arm(asyncio.get_running_loop())
        try:
            yield
        finally:
            if self._handle:
                self._handle.cancel()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        due_s = time.perf_counter() + self._period_s
        self._handle = loop.call_later(self._period_s, self._wake, loop, due_s)

    def _wake(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        self.oversleeps_s.append(max(0.0, time.perf_counter() - due_s))
        self._arm(loop)


@contextmanager
def quiet_gc() -> Iterator[None]:
    """No garbage collection inside: a pause of the collector would pose as latency."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
