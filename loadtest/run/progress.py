"""Tell how far a load test has come, while it runs."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loadtest.options import OnProgress, Progress


@contextmanager
def progress(
    state: Callable[[], Progress], every_s: float, on_progress: OnProgress | None
) -> Iterator[None]:
    """Give ``on_progress`` the state every so often, and once more at the end."""
    if on_progress is None:
        yield
        return
    task = asyncio.ensure_future(_report(state, every_s, on_progress))
    try:
        yield
    finally:
        task.cancel()
        on_progress(state())


async def _report(state: Callable[[], Progress], every_s: float, on_progress: OnProgress) -> None:
    while True:
        await asyncio.sleep(every_s)
        on_progress(state())
