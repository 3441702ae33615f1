"""Ctrl-C and SIGTERM end a load test in order, and never take what it has measured."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """``stop`` is called on the first of them; the second one does what it does without us."""
    loop = asyncio.get_running_loop()

    def once() -> None:
        _let_go(loop)
        stop()

    # Only the main thread, and not every platform, can take signals here.
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in _SIGNALS:
            loop.add_signal_handler(number, once)
    try:
        yield
    finally:
        _let_go(loop)


def _let_go(loop: asyncio.AbstractEventLoop) -> None:
    for number in _SIGNALS:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(number)


class DeferredSignal:
    """Whether a signal came that was not heeded yet."""

    def __init__(self) -> None:
        self.came = False


@contextmanager
def signals_deferred() -> Iterator[DeferredSignal]:
    """What goes on inside comes to its end: the first of them waits, the second one ends it.

    Who asked to wait decides what then becomes of the first.
    """
    deferred = DeferredSignal()
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        deferred.came = True
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    with suppress(ValueError):  # Only the main thread can.
        for number in _SIGNALS:
            before[number] = signal.signal(number, note)
    try:
        yield deferred
    finally:
        restore()
