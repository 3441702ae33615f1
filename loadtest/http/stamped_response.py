"""The answer to one request while it comes in, with a stamp for each piece."""

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx

from loadtest.http.http_parser import ResponseParser
from loadtest.http.recorded_reads import RecordedReads

BODY_LIMIT = 256 * 1024 * 1024
"""Bytes in one answer above which a server counts as broken."""


class StampedResponse(httpx.AsyncByteStream):
    """The answer to one request while it comes in: a body for httpx with stamps.

    ``reads`` holds the body as it came, each piece with the ``time.perf_counter_ns`` at which the
    event loop handed it over, taken before the piece was parsed. A body with a content-encoding
    stays encoded. ``failure`` says why no more comes, ``began`` whether any byte of the answer
    came. ``give_up`` closes the connection. ``server`` (host and port) is named in every failure.
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
        """Close the connection, unless the answer has ended."""
        if not self.ended:
            self._give_up()

    def take(self, stamp_ns: int, data: bytes) -> None:
        """Add bytes that came at ``stamp_ns``."""
        self.began = True
        if body := self.parser.feed(data):
            self.reads.add(stamp_ns, body)
        if self.reads.size_bytes > BODY_LIMIT:
            self._fail(f"more than {BODY_LIMIT >> 20} MiB in one answer")
        elif self.parser.error:
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
        here = [
            self._news,
            self._head_here if self.parser.head or self.ended else None,
            self._end_here if self.ended else None,
        ]
        for future in here:
            if future:
                wake(future)


def wake(future: "asyncio.Future[None]") -> None:
    """Set the result of a future, unless its waiter was cancelled."""
    if not future.done():
        future.set_result(None)
