"""Open connections to one server, the one used last first."""

import asyncio
import time
from collections import OrderedDict

from loadtest.http.connection import Connection


class ConnectionPool:
    """Knows what is open and what is idle; an operation costs the same however many there are.

    The connection used last is given first, so that those no longer needed grow old: after
    ``keepalive_s`` they are closed, when the next one comes or goes.
    """

    def __init__(self, keepalive_s: float) -> None:
        self._keepalive_s = keepalive_s
        self._idle_since_s: OrderedDict[Connection, float] = OrderedDict()
        self._open: set[Connection] = set()

    def __len__(self) -> int:
        """Connections that are open, idle or not."""
        return len(self._open)

    def take(self) -> Connection | None:
        """The idle connection that was used last, no longer idle."""
        self._close_old()
        while self._idle_since_s:
            connection, _ = self._idle_since_s.popitem()
            if connection.usable:
                return connection
        return None

    def opened(self, connection: Connection) -> None:
        """A connection has been opened, for a request that waits for it."""
        self._open.add(connection)

    def idle(self, connection: Connection) -> None:
        """A connection can take another request."""
        self._idle_since_s[connection] = time.monotonic()
        self._close_old()

    def lost(self, connection: Connection) -> None:
        """A connection is closed."""
        self._open.discard(connection)
        self._idle_since_s.pop(connection, None)

    async def aclose(self) -> None:
        """Close everything and wait until it is."""
        for connection in self._open:
            connection.abort()
        await asyncio.gather(*(connection.closed for connection in self._open))

    def _close_old(self) -> None:
        oldest_s = time.monotonic() - self._keepalive_s
        while self._idle_since_s and next(iter(self._idle_since_s.values())) < oldest_s:
            connection, _ = self._idle_since_s.popitem(last=False)
            connection.abort()
