"""Answers are read while the load test runs, in the time that the event loop has left.

So little is left to read when the test ends: what came since the loop was last idle.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from loadtest.http.exchange import Exchange
from loadtest.http.recorded_reads import RecordedReads
from loadtest.stream.stream import StreamReader, TokenStream

SLICE_S = 0.0002
"""The event loop is kept so long at a time; a stamp may be as late."""
PIECES = 16
"""Read between two looks at the clock."""
PAUSE_S = 0.02
"""Between two rounds over all answers that come in."""
BUSY_S = 0.001
"""A loop that takes longer for a turn has something better to do."""


_MOST_FRESH = 10_000
"""Kept for who asks what is new; nobody may."""


class ReadAhead:
    """Reads the answers to requests that have begun. Of one that has ended the bytes are given up.

    ``unread`` answers are not whole, or not all read.
    """

    def __init__(self) -> None:
        self._readers: dict[int, StreamReader] = {}
        self.unread: deque[Exchange] = deque()
        self._fresh: deque[tuple[Exchange, TokenStream]] = deque(maxlen=_MOST_FRESH)

    def begin(self, exchange: Exchange) -> None:
        """A request goes out."""
        self._readers[id(exchange)] = StreamReader(exchange)
        self.unread.append(exchange)

    def judged(self, exchange: Exchange) -> TokenStream:
        """All of an answer that has ended, for who must know before the end of the test."""
        return self._readers[id(exchange)].end()

    def stream(self, exchange: Exchange) -> TokenStream:
        """All of an answer that has ended, or of none; to be asked for once."""
        reader = self._readers.pop(id(exchange), None)
        return (reader or StreamReader(exchange)).end()

    def fresh(self) -> Iterator[tuple[Exchange, TokenStream]]:
        """Whose answers have been read since this was asked last."""
        while self._fresh:
            yield self._fresh.popleft()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Read in the running event loop."""
        task = asyncio.ensure_future(self._run())
        try:
            yield
        finally:
            task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_S)
            began_s = time.perf_counter()
            for _ in self._steps():
                paused_s = time.perf_counter()
                if paused_s - began_s > SLICE_S:
                    await asyncio.sleep(0)
                    began_s = time.perf_counter()
                    if began_s - paused_s > BUSY_S:
                        break

    def _steps(self) -> Iterator[None]:
        """One round over all answers, a few pieces at a time."""
        for _ in range(len(self.unread)):
            exchange = self.unread[0]
            reader = self._readers[id(exchange)]
            while reader.advance(PIECES):
                yield
            self.unread.popleft()
            if not exchange.ended:
                self.unread.append(exchange)
            else:
                self._fresh.append((exchange, reader.stream))
                if reader.advanced:
                    exchange.reads = RecordedReads()
            yield
