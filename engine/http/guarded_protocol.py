"""Uvicorn's HTTP protocol with limits for clients that are slow, deaf or gone."""

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

# How long the headers of a request may take from their first byte on.
HEADERS_LIMIT_S = 15.0
# How long a new connection may stay without a byte.
FIRST_REQUEST_LIMIT_S = 120.0
# How long a client may take to make room for the next part of its answer.
READ_LIMIT_S = 60.0
# How long a client's machine may leave sent bytes, or probes, without an acknowledgement.
VANISHED_LIMIT_S = 60
_PROBE_EVERY_S = 15


class GuardedProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]  # chosen at run time
    """Closes connections on which no request comes about, or whose answers are not read."""

    _deadline: asyncio.TimerHandle | None = None
    _read_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Expect a request within ``FIRST_REQUEST_LIMIT_S``."""
        super().connection_made(transport)
        _probe_vanished(transport.get_extra_info("socket"))
        self._expect_request(FIRST_REQUEST_LIMIT_S)

    def data_received(self, data: bytes) -> None:
        """Expect the end of the headers that begin with this data."""
        cycle = self.cycle
        super().data_received(data)
        if self.cycle is not cycle:
            self._stop_expecting()
        elif cycle is None or cycle.response_complete:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        _cancel(self._deadline, self._read_deadline)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Expect that the client reads, within ``READ_LIMIT_S``; cut it off where it does not."""
        super().pause_writing()
        self._read_deadline = self.loop.call_later(READ_LIMIT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        _cancel(self._read_deadline)
        super().resume_writing()

    def _expect_headers(self) -> None:
        """Begin to wait for the end of headers, unless that has begun."""
        if self._deadline is None or self._deadline.when() - self.loop.time() > HEADERS_LIMIT_S:
            self._expect_request(HEADERS_LIMIT_S)

    def _expect_request(self, limit_s: float) -> None:
        self._stop_expecting()
        self._deadline = self.loop.call_later(limit_s, self.transport.close)

    def _stop_expecting(self) -> None:
        _cancel(self._deadline)
        self._deadline = None


def _cancel(*timers: asyncio.TimerHandle | None) -> None:
    for timer in timers:
        if timer is not None:
            timer.cancel()


def _probe_vanished(connection: Any) -> None:
    """Let the kernel find out that a client has gone without a word."""
    if connection is None or connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        tcp = socket.IPPROTO_TCP
        connection.setsockopt(tcp, socket.TCP_KEEPIDLE, _PROBE_EVERY_S)
        connection.setsockopt(tcp, socket.TCP_KEEPINTVL, _PROBE_EVERY_S)
        connection.setsockopt(tcp, socket.TCP_USER_TIMEOUT, VANISHED_LIMIT_S * 1000)
