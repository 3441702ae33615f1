"""The mock endpoint: a listening socket, a plan, and the record of what was done."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

from loadtest.mock.clock import Timeline
from loadtest.mock.connection import MockConnection
from loadtest.mock.plan import MockPlan
from loadtest.mock.request_handler import RequestHandler
from loadtest.mock.truth import TruthLog
from loadtest.run.event_loop import run_fast
from loadtest.run.stop_signals import stop_signals
from workloads.errors import MockError
from workloads.listening import listening_socket, url_of

_BACKLOG = 1024


class MockServer:
    """Serves a plan in the running event loop, from ``start`` to ``stop``, at ``url``."""

    def __init__(self, plan: MockPlan, truth: TruthLog) -> None:
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
        self._connections: set[MockConnection] = set()
        self.truth = truth
        self._timeline = Timeline(asyncio.get_running_loop())
        self._handler = RequestHandler(plan, self.truth, self._timeline)
        self._handler.on_refuse = self._refuse
        self.url = ""

    @property
    def text_requests(self) -> int:
        """The number of requests for text so far."""
        return self._handler.text_requests

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen on ``port``, 0 for a free one. Raises ``MockError`` where that fails."""
        accepts = not self._handler.refuses
        self._socket = listening_socket(host, port, MockError, accepts=accepts)
        self.url = url_of(self._socket)
        if accepts:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: MockConnection(self._handler, self._connections),
                sock=self._socket,
                backlog=_BACKLOG,
            )

    async def stop(self) -> None:
        """Close everything; answers in flight end as stopped in the truth."""
        self._timeline.clear()
        self._handler.refuses = True
        self._refuse()
        self.truth.close()
        for connection in list(self._connections):
            connection.close()
        if self._socket:
            self._socket.close()
        await asyncio.sleep(0)

    def _refuse(self) -> None:
        if self._server:
            self._server.close()
        for connection in list(self._connections):
            if connection.idle:
                connection.close()


def serve_mock(
    plan: MockPlan, host: str, port: int, truth: Path | None, on_ready: Callable[[str], None]
) -> int:
    """Serve until SIGINT or SIGTERM and return the number of requests for text.

    ``on_ready`` is called with the URL, ``truth`` is a file that gets a line per request. For the
    main thread only. Raises ``MockError`` where it cannot listen or write there.
    """
    return run_fast(_serve(plan, host, port, truth, on_ready))


async def _serve(
    plan: MockPlan, host: str, port: int, truth: Path | None, on_ready: Callable[[str], None]
) -> int:
    stopped = asyncio.Event()
    server = MockServer(plan, TruthLog(truth))
    await server.start(host, port)
    with stop_signals(stopped.set):
        on_ready(server.url)
        await stopped.wait()
    await server.stop()
    return server.text_requests
