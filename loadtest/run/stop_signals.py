"""Ctrl-C and SIGTERM end a load test in order and keep what it has measured."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on the first SIGINT or SIGTERM; the second has its usual effect."""
    loop = asyncio.get_running_loop()

    def once() -> None:
        _remove_handlers(loop)
        stop()

    # Signals can be handled in the main thread only, and not on every platform.
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in _SIGNALS:
            loop.add_signal_handler(number, once)
    try:
        yield
    finally:
        _remove_handlers(loop)


def _remove_handlers(loop: asyncio.AbstractEventLoop) -> None:
    for number in _SIGNALS:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(number)


@contextmanager
def signals_deferred() -> Iterator[Event]:
    """Let the block finish on the first SIGINT or SIGTERM; the second has its usual effect.

    The event is set by the first one; the caller decides afterwards what that does.
    """
    deferred = Event()
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        deferred.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    with suppress(ValueError):  # Signals can be handled in the main thread only.
        for number in _SIGNALS:
            before[number] = signal.signal(number, note)
    try:
        yield deferred
    finally:
        restore()
