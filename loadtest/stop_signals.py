"""Ctrl-C and SIGTERM end a load test in order."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

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
