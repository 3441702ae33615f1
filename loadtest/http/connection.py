"""One connection to the server, and the answer that comes in on it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol, cast

import httpx

from loadtest.http.http_parser import ResponseParser
from loadtest.http.recorded_reads import RecordedReads

BODY_LIMIT = 256 * 1024 * 1024
"""Bytes in one answer after which a server is taken for broken."""


class StampedResponse(httpx.AsyncByteStream):
    """The answer to one request while it comes in: a body for httpx that knows its stamps.

    ``reads`` holds the body as it came, each piece with the ``time.perf_counter_ns`` at which the
    event loop handed it over, taken before anything was looked at. A body in a content-encoding
    is still encoded. ``failure`` says why there is no more to come, ``began`` whether any byte of
    the answer came.
    """

    def __init__(self, server: str, method: str, give_up: Callable[[], None]) -> None:
        self._server = server
        self._give_up = give_up
        loop = asyncio.get_running_loop()
        self._head_here: asyncio.Future[None] = loop.create_future()
        self._end_here: asyncio.Future[None] = loop.create_future()
        self._news: asyncio.Future[None] | None = None
        self.parser = ResponseParser(method)
        self.reads = RecordedReads()
        self.failure: httpx.HTTPError | None = None
        self.began = False

    @property
    def ended(self) -> bool:
        """Whether it is whole or has failed."""
        return self.parser.complete or self.failure is not None

    async def begun(self) -> None:
        """Wait until its head is here, or cannot come any more."""
        await self._head_here

    async def whole(self) -> None:
        """Wait until all of it is in ``reads``, with one wake-up. Raises ``failure``."""
        await self._end_here
        if self.failure:
            raise self.failure

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces of the body as they come."""
        given = 0
        while True:
            while given < len(self.reads):
                yield self.reads[given][1]
                given += 1
            if self.ended:
                break
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if self.failure:
            raise self.failure

    async def aclose(self) -> None:
        """No more of it is wanted; a connection that still brings some is closed."""
        if not self.ended:
            self._give_up()

    def take(self, stamp_ns: int, data: bytes) -> None:
        """Bytes have come."""
        self.began = True
        if body := self.parser.feed(data):
            self.reads.add(stamp_ns, body)
        if self.reads.size_bytes > BODY_LIMIT:
            self._fail(f"more than {BODY_LIMIT >> 20} MiB in one answer")
        elif self.parser.error:
            self._fail(self.parser.error)
        self._tell()

    def closed(self, error: Exception | None) -> None:
        """The connection was closed, by ``error`` where it was not in order."""
        if isinstance(error, OSError):
            self.failure = httpx.ReadError(f"{self._server}: {error.strerror or error}")
        else:
            self.parser.end()
        if self.parser.error:
            self._fail(self.parser.error)
        self._tell()

    def _fail(self, reason: str) -> None:
        self.failure = self.failure or httpx.RemoteProtocolError(f"{self._server}: {reason}")

    def _tell(self) -> None:
        """Wake who waits for what is here now."""
        here = [
            self._news,
            self._head_here if self.parser.head or self.ended else None,
            self._end_here if self.ended else None,
        ]
        for future in here:
            if future:
                _wake(future)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():  # Cancelled, where its waiter was.
        future.set_result(None)


class Home(Protocol):
    """Where a connection belongs, and what it says there."""

    def opened(self, connection: "Connection") -> None:
        """It is open."""

    def idle(self, connection: "Connection") -> None:
        """An answer is whole, and it can take another request."""

    def lost(self, connection: "Connection") -> None:
        """It is closed, by whomever."""


class Connection(asyncio.Protocol):
    """Carries one request at a time. ``server`` (host and port) is named in every failure.

    TCP_NODELAY is on: event loops set it on every TCP socket.
    """

    def __init__(self, server: str, home: Home) -> None:
        self._server = server
        self._home = home
        self._answer: StampedResponse | None = None
        self._opening_since_s = time.perf_counter()
        self._opening_s = 0.0
        self._asked_at_s = 0.0
        self._lost_at_s: float | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def usable(self) -> bool:
        """Whether it is still open on this side."""
        return not self._transport.is_closing()

    def ask(self, method: str, message: bytes) -> StampedResponse:
        """Send a request, all of it, and return the answer to come."""
        self._answer = StampedResponse(self._server, method, self.abort)
        self._asked_at_s = time.perf_counter()
        self._transport.write(message)
        return self._answer

    def crossed(self, answer: StampedResponse) -> bool:
        """Whether the server had closed the connection before the request was there.

        So it is taken where nothing of an answer came, and the end came within the time that
        opening the connection took, which was a round trip at least, and a little.
        """
        if answer.began or self._lost_at_s is None:
            return False
        return self._lost_at_s - self._asked_at_s < self._opening_s + 0.01

    def abort(self) -> None:
        """Close at once; an answer in flight fails."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast(asyncio.Transport, transport)
        self._opening_s = time.perf_counter() - self._opening_since_s
        self._home.opened(self)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop; the stamp comes before all else."""
        stamp_ns = time.perf_counter_ns()
        answer = self._answer
        if answer is None:
            self.abort()  # Nobody asked: a server that says goodbye, or one that is broken.
            return
        answer.take(stamp_ns, data)
        if answer.ended:
            self._answer = None
            if answer.parser.connection_stays:
                self._home.idle(self)
            else:
                self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        self._lost_at_s = time.perf_counter()
        if self._answer:
            self._answer.closed(error)
        self._home.lost(self)
        _wake(self.closed)
