"""Reads answers while the load test runs, in the idle time of the event loop.

So little is left to read at the end of the test: what came since the loop was last idle.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from servetwin.loadtest.http.exchange import Exchange
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.stream.stream_reader import StreamReader, TokenStream
from servetwin.loadtest.stream.whole_answer import WholeAnswerReader

AnswerReader = StreamReader | WholeAnswerReader

# The longest time that reading holds the event loop; a stamp may be as late.
SLICE_S = 0.0002
# Pieces read between two looks at the clock; of an answer under way never fewer.
PIECES = 16
# Between two rounds over all unread answers.
PAUSE_S = 0.05
# A loop that takes longer for a turn is busy, and the round pauses for ``BUSY_PAUSE_S``.
BUSY_S = 0.001
BUSY_PAUSE_S = 0.002
# Answers kept for ``fresh``, which may never be called.
_MOST_FRESH = 10_000


OnEnd = Callable[[Exchange, TokenStream], None]


class ReadAhead:
    """Reads the answers to requests in flight, and frees the bytes that it has read.

    ``new_reader`` makes what reads one answer. ``unread`` are the exchanges whose answers still
    come in or are not read to their end. ``on_end`` is called with each that has ended and its
    tokens.
    """

    def __init__(
        self,
        new_reader: Callable[[Exchange], AnswerReader] = StreamReader,
        on_end: OnEnd | None = None,
    ) -> None:
        self._new_reader = new_reader
        self._on_end = on_end
        self._readers: dict[int, AnswerReader] = {}
        self.unread: deque[Exchange] = deque()
        self._fresh: deque[tuple[Exchange, TokenStream]] = deque(maxlen=_MOST_FRESH)

    def begin(self, exchange: Exchange) -> None:
        """Add a request that is about to be sent."""
        self._readers[id(exchange)] = self._new_reader(exchange)
        self.unread.append(exchange)

    def judged(self, exchange: Exchange) -> TokenStream:
        """Read an answer that has ended to its end, before the end of the test."""
        return self._readers[id(exchange)].end()

    def stream(self, exchange: Exchange) -> TokenStream:
        """Read an answer that has ended to its end; once per exchange."""
        reader = self._readers.pop(id(exchange), None)
        return (reader or self._new_reader(exchange)).end()

    def fresh(self) -> Iterator[tuple[Exchange, TokenStream]]:
        """Take the exchanges whose answers have been read since the last call."""
        while self._fresh:
            yield self._fresh.popleft()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Read in the running event loop inside the block."""
        task = asyncio.ensure_future(self._run())
        try:
            yield
        finally:
            task.cancel()

    def read_rest(self) -> None:
        """Read what is left of the answers that have ended, without a look at the clock."""
        for _ in self._steps():
            pass

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
                        await asyncio.sleep(BUSY_PAUSE_S)
                        began_s = time.perf_counter()

    def _steps(self) -> Iterator[None]:
        """Read one round over all answers, a few pieces between two yields."""
        for _ in range(len(self.unread)):
            exchange = self.unread[0]
            reader = self._readers[id(exchange)]
            reads = exchange.reads if isinstance(exchange.reads, RecordedReads) else RecordedReads()
            due = exchange.ended or len(reads) - reader.pieces >= PIECES
            while due and reader.advance(PIECES):
                yield
            self.unread.popleft()
            if not exchange.ended:
                self.unread.append(exchange)
            else:
                self._fresh.append((exchange, reader.stream))
                if self._on_end:
                    self._on_end(exchange, self.stream(exchange))
            reads.drop(reader.pieces)
            yield
