"""The event loop of a load test: the fastest one, its delays and signals, no garbage collection."""

import asyncio
import gc
import signal
import time
from array import array
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from threading import Event
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
# A shorter delay of the loop explains no buffered answer (``loadtest.stream.doubts``).
STALL_S = 0.010


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop where it is installed (a third less CPU per chunk), else asyncio's loop."""
    with suppress(ImportError):
        loop: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
        return loop
    return asyncio.new_event_loop()


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as ``asyncio.run`` does, on the fastest event loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def loop_name() -> str:
    """Return the package of the running event loop."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


class LoopWatch:
    """A chain of 5 ms timers; a stamp can be as late as these timers wake.

    Their delay is measured on ``time.perf_counter``: some loops read their own clock only once per
    turn. ``oversleeps_s`` has the delay of each timer in seconds, ``stalls_ns`` begin and end of
    those of ``STALL_S`` and more.
    """

    def __init__(self, period_s: float = 0.005) -> None:
        self._period_s = period_s
        self._handle: asyncio.TimerHandle | None = None
        self.oversleeps_s = array("d")
        self.stalls_ns: list[tuple[int, int]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch the running event loop inside the block."""
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
        now_s = time.perf_counter()
        self.oversleeps_s.append(max(0.0, now_s - due_s))
        if now_s - due_s >= STALL_S:
            self.stalls_ns.append((round(due_s * 1e9), round(now_s * 1e9)))
        self._arm(loop)


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Turn garbage collection off inside: its pauses would be measured as latency.

    Raises ``KeyboardInterrupt`` for a signal that comes during the collection before.
    """
    was_enabled = gc.isenabled()
    # An exception that a signal raises in a finaliser is printed and lost.
    with signals_deferred() as signalled:
        gc.collect()
    if signalled.is_set():
        raise KeyboardInterrupt
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def stop_signals(stop: Callable[[], object]) -> AbstractContextManager[None]:
    """Call ``stop`` in the running event loop on the first SIGINT or SIGTERM inside the block.

    The second has its usual effect.
    """
    loop = asyncio.get_running_loop()
    return _on_first_signal(lambda: loop.call_soon_threadsafe(stop))


@contextmanager
def signals_deferred() -> Iterator[Event]:
    """Let the block finish on the first SIGINT or SIGTERM; the second has its usual effect.

    The event is set by the first one; the caller decides afterwards what that does.
    """
    deferred = Event()
    with _on_first_signal(deferred.set):
        yield deferred


@contextmanager
def _on_first_signal(act: Callable[[], object]) -> Iterator[None]:
    before: dict[int, Any] = {}

    def first(number: int, frame: FrameType | None) -> None:
        restore()
        act()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    with suppress(ValueError):  # Signals can be handled in the main thread only.
        for number in _SIGNALS:
            before[number] = signal.signal(number, first)
    try:
        yield
    finally:
        restore()
