"""Connections to one server: the answer that each carries, and the pool of those that are open."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import cast

import httpx

from servetwin.loadtest.http.http_parser import ResponseParser
from servetwin.loadtest.http.recorded_reads import RecordedReads

# Bytes in one answer above which a server counts as broken.
BODY_LIMIT = 256 * 1024 * 1024


class StampedResponse(httpx.AsyncByteStream):
    """The answer to one request while it comes in: a body for httpx with stamps.

    ``reads`` holds the body as it came, each piece with the ``time.perf_counter_ns`` at which the
    event loop handed it over, taken before the piece was parsed. A body with a content-encoding
    stays encoded. ``failure`` says why no more comes, ``began`` whether any byte of the answer
    came. ``give_up`` closes the connection. ``server`` (host and port) is named in every failure.
    """

    def __init__(self, server: str, give_up: Callable[[], None]) -> None:
        self._server = server
        self._give_up = give_up
        loop = asyncio.get_running_loop()
        self._head_here: asyncio.Future[None] = loop.create_future()
        self._end_here: asyncio.Future[None] = loop.create_future()
        self._iterated: asyncio.Queue[bytes] | None = None
        self.parser = ResponseParser()
        self.reads = RecordedReads()
        self.failure: httpx.HTTPError | None = None
        self.began = False

    @property
    def ended(self) -> bool:
        """Whether the answer is complete or has failed."""
        return self.parser.complete or self.failure is not None

    async def begun(self) -> None:
        """Wait until the head is here or cannot come any more."""
        await self._head_here

    async def whole(self) -> None:
        """Wait until all of the body is in ``reads``, with one wake-up. Raises ``failure``."""
        await self._end_here
        if self.failure:
            raise self.failure

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body as they come."""
        self._iterated = queue = asyncio.Queue[bytes]()
        for _, data in self.reads:
            queue.put_nowait(data)
        self._wake_waiters()
        while data := await queue.get():
            yield data
        if self.failure:
            raise self.failure

    async def aclose(self) -> None:
        """Close the connection, unless the answer has ended."""
        if not self.ended:
            self._give_up()

    def take(self, stamp_ns: int, data: bytes) -> None:
        """Add bytes that came at ``stamp_ns``."""
        self.began = True
        if body := self.parser.feed(data):
            self.reads.add(stamp_ns, body)
            if self._iterated:
                self._iterated.put_nowait(body)
        if self.reads.size_bytes > BODY_LIMIT:
            self.parser.fail(f"more than {BODY_LIMIT >> 20} MiB in one answer")
        if self.parser.error:
            self._fail(self.parser.error)
        self._wake_waiters()

    def closed(self, error: Exception | None) -> None:
        """End the answer: the connection was closed, by ``error`` or in order."""
        if isinstance(error, OSError):
            self.failure = httpx.ReadError(f"{self._server}: {error.strerror or error}")
        else:
            self.parser.end()
        if self.parser.error:
            self._fail(self.parser.error)
        self._wake_waiters()

    def _fail(self, reason: str) -> None:
        self.failure = self.failure or httpx.RemoteProtocolError(f"{self._server}: {reason}")

    def _wake_waiters(self) -> None:
        if self.parser.head or self.ended:
            wake(self._head_here)
        if self.ended:
            wake(self._end_here)
            if self._iterated:
                self._iterated.put_nowait(b"")


def wake(future: "asyncio.Future[None]") -> None:
    """Set the result of a future, unless its waiter was cancelled."""
    if not future.done():
        future.set_result(None)


class Connection(asyncio.Protocol):
    """A connection that carries one request at a time and reports to its ``pool``.

    ``server`` (host and port) is named in every failure. TCP_NODELAY is on: event loops set it on
    every TCP socket.
    """

    def __init__(self, server: str, pool: "ConnectionPool") -> None:
        self.server = server
        self._pool = pool
        self._response: StampedResponse | None = None
        self._opening_since_s = time.perf_counter()
        self._opening_s = 0.0
        self._sent_at_s = 0.0
        self._lost_at_s: float | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def usable(self) -> bool:
        """Whether it is still open on this side."""
        return not self._transport.is_closing()

    def send(self, message: bytes) -> StampedResponse:
        """Send a whole request and return the answer to come."""
        self._response = StampedResponse(self.server, self.abort)
        self._sent_at_s = time.perf_counter()
        self._transport.write(message)
        return self._response

    def closed_before_request(self, response: StampedResponse) -> bool:
        """Return whether the server had closed the connection before the request arrived.

        That is assumed where no byte of an answer came and the connection ended within the time
        that its opening took (a round trip at least) and 10 ms.
        """
        if response.began or self._lost_at_s is None:
            return False
        return self._lost_at_s - self._sent_at_s < self._opening_s + 0.01

    def abort(self) -> None:
        """Close at once; an answer in flight fails."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast(asyncio.Transport, transport)
        self._opening_s = time.perf_counter() - self._opening_since_s
        self._pool.opened(self)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop; the stamp is taken first."""
        stamp_ns = time.perf_counter_ns()
        response = self._response
        if response is None:
            self.abort()  # Bytes without a request: a server that says goodbye, or a broken one.
            return
        response.take(stamp_ns, data)
        if response.ended:
            self._response = None
            if response.parser.connection_stays:
                self._pool.idle(self)
            else:
                self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        self._lost_at_s = time.perf_counter()
        if self._response:
            self._response.closed(error)
        self._pool.lost(self)
        wake(self.closed)


class ConnectionPool:
    """The open connections to one server; an operation costs the same however many there are.

    The connection used last is taken first, so that connections no longer needed grow old. After
    ``keepalive_s`` they are closed, when the next one is taken or becomes idle.
    """

    def __init__(self, keepalive_s: float) -> None:
        self._keepalive_s = keepalive_s
        self._idle_since_s: OrderedDict[Connection, float] = OrderedDict()
        self._open: set[Connection] = set()

    def take(self) -> Connection | None:
        """Take the idle connection that was used last; None where none is idle."""
        self._close_old()
        while self._idle_since_s:
            connection, _ = self._idle_since_s.popitem()
            if connection.usable:
                return connection
        return None

    def opened(self, connection: Connection) -> None:
        """Add a new connection, which is not idle."""
        self._open.add(connection)

    def idle(self, connection: Connection) -> None:
        """Make a connection available for another request."""
        self._idle_since_s[connection] = time.monotonic()
        self._close_old()

    def lost(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        self._open.discard(connection)
        self._idle_since_s.pop(connection, None)

    async def aclose(self) -> None:
        """Close every connection and wait until they are closed."""
        for connection in self._open:
            connection.abort()
        await asyncio.gather(*(connection.closed for connection in self._open))

    def _close_old(self) -> None:
        oldest_s = time.monotonic() - self._keepalive_s
        while self._idle_since_s and next(iter(self._idle_since_s.values())) < oldest_s:
            connection, _ = self._idle_since_s.popitem(last=False)
            connection.abort()
