"""A mock endpoint as a command: until Ctrl-C."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from loadtest.mock.plan import MockPlan
from loadtest.mock.server import MockServer
from loadtest.mock.truth import TruthLog
from loadtest.run.event_loop import run_fast
from loadtest.run.stop_signals import stop_signals


def serve_mock(
    plan: MockPlan, host: str, port: int, truth: Path | None, on_ready: Callable[[str], None]
) -> int:
    """Serve until SIGINT or SIGTERM; ``on_ready`` gets the URL. Returns how many asked for text.

    ``truth`` takes a line per request. To be called in the main thread. Raises ``MockError`` when
    it cannot listen or write there.
    """
    return run_fast(_serve(plan, host, port, truth, on_ready))


async def _serve(
    plan: MockPlan, host: str, port: int, truth: Path | None, on_ready: Callable[[str], None]
) -> int:
    stopped = asyncio.Event()
    server = MockServer(plan, TruthLog(truth, keep=False))
    await server.start(host, port)
    with stop_signals(stopped.set):
        on_ready(server.url)
        await stopped.wait()
    await server.stop()
    return server.asked
