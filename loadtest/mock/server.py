"""The mock endpoint: a socket, a plan, and the truth about what was done."""

import asyncio
import socket

from loadtest.mock.connection import MockConnection
from loadtest.mock.errors import MockError
from loadtest.mock.http import RequestHead
from loadtest.mock.plan import MockPlan
from loadtest.mock.request_handler import Reply, RequestHandler
from loadtest.mock.server_clock import ServerClock
from loadtest.mock.timeline import Timeline
from loadtest.mock.truth import TruthLog

_BACKLOG = 1024


class MockServer:
    """Serves a plan in the running event loop, from ``start`` to ``stop``, at ``url``."""

    def __init__(self, plan: MockPlan, truth: TruthLog | None = None) -> None:
        self._plan = plan
        self._desk = RequestHandler(plan)
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
        self.truth = truth or TruthLog()
        self.clock = ServerClock(plan.freezes)
        self.timeline = Timeline(asyncio.get_running_loop())
        self.connections: set[MockConnection] = set()
        self.refuses = plan.refuse_after == 0
        self.url = ""

    @property
    def asked(self) -> int:
        """Requests for text so far."""
        return self._desk.asked

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; ``port`` 0 takes a free one. Raises ``MockError`` where that cannot be."""
        self._socket = await _bound(host, port)
        self.url = _url(self._socket)
        if not self.refuses:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: MockConnection(self), sock=self._socket, backlog=_BACKLOG
            )

    async def stop(self) -> None:
        """Close everything; what was not complete is in the truth as stopped."""
        self.timeline.clear()
        self._refuse()
        self.truth.close()
        for connection in list(self.connections):
            connection.close()
        if self._socket:
            self._socket.close()
        await asyncio.sleep(0)

    def reply(self, head: RequestHead, body: bytes, arrival_ns: int) -> Reply:
        """The answer to a request that came at ``arrival_ns``."""
        reply = self._desk.reply(head, body, arrival_ns)
        if reply.truth:
            self.clock.start(arrival_ns)
            self.truth.begin(reply.truth)
        if self._desk.asked == self._plan.refuse_after:
            self._refuse()
        return reply

    def _refuse(self) -> None:
        self.refuses = True
        if self._server:
            self._server.close()
        for connection in list(self.connections):
            if connection.idle:
                connection.close()


def _url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _bound(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        # with its protocol: asyncio sets TCP_NODELAY on no other socket
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise MockError(f"cannot listen on {host}: {error.strerror}") from error
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise MockError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return bound
