"""A tunnel to a server: bytes pass through as they come, and an observer sees copies with stamps.

Each connection of a client has one of its own to the server. Of a request only the ``Host`` and the
path before its own are changed; of an answer nothing.
"""

import asyncio
import ssl
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol, cast

import httptools
import httpx

from servetwin.loadtest.http.exchange import Exchange, Failure, failure_kind
from servetwin.loadtest.http.http_parser import Field, ResponseParser
from servetwin.loadtest.http.recorded_reads import RecordedReads

# Their answers have no body whatever the head says; what follows on the connection is not seen.
_UNFIT = {b"HEAD", b"CONNECT"}


@dataclass(slots=True)
class Passing:
    """A request on its way: its path and fields as the client sent them, its body, its answer."""

    path: str
    fields: list[Field]
    exchange: Exchange
    body: bytearray = field(default_factory=bytearray)
    parser: ResponseParser = field(default_factory=ResponseParser)
    held_bytes: int = 0
    """Of both bodies, as far as they are here."""


class Observer(Protocol):
    """Sees what passes."""

    def begun(self, passing: Passing) -> None:
        """Take a request whose head is here."""

    def holds(self, passing: Passing, size: int) -> bool:
        """Return whether to keep so many more bytes of the bodies of a request."""

    def ended(self, passing: Passing) -> None:
        """Take a request whose answer is complete, or will never be."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The server behind the tunnel."""

    url: httpx.URL
    tls: ssl.SSLContext | None

    @property
    def host_field(self) -> bytes:
        """The value of ``Host`` that the server expects."""
        return self.url.netloc

    @property
    def path(self) -> bytes:
        """What stands before each path that a client names."""
        return self.url.raw_path.rstrip(b"/")

    async def connect(self, protocol: "ServerSide") -> None:
        """Open a connection. Raises ``OSError``."""
        port = self.url.port or (443 if self.tls else 80)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: protocol, self.url.host, port, ssl=self.tls)


class _Side(asyncio.Protocol):
    """One end of a tunnel, which reads no faster than the other end can write."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        if self.other and self.other.transport and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other and self.other.transport and not self.other.transport.is_closing():
            self.other.transport.resume_reading()


class ServerSide(_Side):
    """The end at the server: passes answers on, then shows them to the observer."""

    def __init__(self, client: "ClientSide", observer: Observer) -> None:
        super().__init__()
        self.other = client
        self._observer = observer
        self.passing: deque[Passing] = deque()
        self.seen = True

    def data_received(self, data: bytes) -> None:
        """Called by the event loop with a part of an answer."""
        stamp_ns = time.perf_counter_ns()
        if self.other and self.other.transport:
            self.other.transport.write(data)
        if self.passing and self.seen:
            self._take(self.passing[0], stamp_ns, data)

    def _take(self, passing: Passing, stamp_ns: int, data: bytes) -> None:
        parser, exchange = passing.parser, passing.exchange
        body = parser.feed(data)
        if exchange.headers is None and parser.head:
            exchange.headers = httpx.Headers(parser.head.fields)
            exchange.status_code = parser.head.status
        if body and self._observer.holds(passing, len(body)):
            cast(RecordedReads, exchange.reads).add(stamp_ns, body)
        if parser.complete or parser.error:
            self.seen = not parser.error
            self._end(self.passing.popleft())

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop when the server has closed the connection."""
        while self.passing:
            self.passing[0].parser.end()
            self._end(self.passing.popleft())
        if self.other and self.other.transport:
            self.other.transport.close()

    def _end(self, passing: Passing) -> None:
        exchange, status = passing.exchange, passing.exchange.status_code
        if passing.parser.error and not exchange.failure:
            exchange.failure = Failure("broken_stream", passing.parser.error)
        elif status is not None and status != 200:
            exchange.failure = Failure(failure_kind(status), f"HTTP {status}")
        exchange.ended = True
        self._observer.ended(passing)


class ClientSide(_Side):
    """The end at the client: passes requests on, each with its new head."""

    def __init__(self, upstream: Upstream, observer: Observer, live: set["ClientSide"]) -> None:
        super().__init__()
        self._upstream, self._observer, self._live = upstream, observer, live
        self._parser = httptools.HttpRequestParser(self)
        self._server = ServerSide(self, observer)
        self.other = self._server
        self._held: list[bytes] | None = []
        self._opening: asyncio.Task[None] | None = None
        self._down = ""
        self._stamp_ns = self._began_ns = 0
        self._url = b""
        self._fields: list[Field] = []
        self._passing: Passing | None = None
        self._chunked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop; the connection to the server opens meanwhile."""
        super().connection_made(transport)
        self._live.add(self)
        self._opening = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        try:
            await self._upstream.connect(self._server)
        except OSError as error:
            self._down = f"{self._upstream.url}: {error.strerror or error}"
        held, self._held = self._held or [], None
        for data in held:
            self._send(data)
        if self.transport and not self.transport.is_closing():
            self.transport.resume_reading()
        if self._down:
            self._refuse()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop with a part of a request."""
        self._stamp_ns = time.perf_counter_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._answer(b"501 Not Implemented", "the connection cannot change its protocol here")
        except httptools.HttpParserError as error:
            self._answer(b"400 Bad Request", f"not HTTP/1.1 ({error})")

    def on_message_begin(self) -> None:
        """Called by the parser at the first byte of a request."""
        self._url, self._fields, self._began_ns = b"", [], self._stamp_ns

    def on_url(self, url: bytes) -> None:
        """Called by the parser with the target, or a part of it."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser with a field, or a trailer, which is dropped."""
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Called by the parser at the end of a head."""
        method, fields, self._fields = self._parser.get_method(), self._fields, []
        path = self._url.split(b"?")[0].decode("latin-1")
        passing = Passing(path, fields, Exchange(sent_ns=self._began_ns, reads=RecordedReads()))
        self._passing = passing
        self._observer.begun(passing)
        self._server.seen &= method not in _UNFIT and not self._server.passing
        self._server.passing.append(passing)
        self._chunked = any(name.lower() == b"transfer-encoding" for name, _ in fields)
        self._send(self._head(method, fields))

    def _head(self, method: bytes, fields: list[Field]) -> bytes:
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b%b HTTP/%b" % (method, self._upstream.path, self._url, version)]
        for name, value in fields:
            is_host = name.lower() == b"host"
            lines.append(b"%b: %b" % (name, self._upstream.host_field if is_host else value))
        return b"\r\n".join([*lines, b"", b""])

    def on_body(self, data: bytes) -> None:
        """Called by the parser with a part of a body."""
        if self._passing and self._observer.holds(self._passing, len(data)):
            self._passing.body += data
        self._send(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def on_message_complete(self) -> None:
        """Called by the parser at the end of a request."""
        if self._chunked:
            self._send(b"0\r\n\r\n")
        if self._down:
            self._refuse()

    def _send(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
            if self.transport:
                self.transport.pause_reading()
        elif self._server.transport:
            self._server.transport.write(data)

    def _refuse(self) -> None:
        """Answer for a server that cannot be reached."""
        if self._server.passing:
            self._server.passing[0].exchange.failure = Failure("connect", self._down)
            self._answer(b"502 Bad Gateway", self._down)

    def _answer(self, status: bytes, message: str) -> None:
        body = httpx.Response(200, json={"error": {"message": message}}).content
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        if self.transport:
            end = b"connection: close\r\n\r\n" + body
            self.transport.write(head % (status, len(body)) + end)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop when the client has gone, or was sent away."""
        self._live.discard(self)
        if self._opening:
            self._opening.cancel()
        for passing in self._server.passing:
            passing.exchange.failure = passing.exchange.failure or Failure("cancelled", "hung up")
        if self._server.transport:
            self._server.transport.abort()
        else:
            self._server.connection_lost(exc)

    def close(self) -> None:
        """Hang up on both sides; what is under way has failed."""
        if self.transport:
            self.transport.abort()
