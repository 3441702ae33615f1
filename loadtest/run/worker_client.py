"""The load test in one process: an HTTP client, a schedule, and what was measured with them."""

import asyncio
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.http.exchange import Exchange
from servetwin.loadtest.http.transport import open_client, posts_to
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.plan.schedule import ClockZero, Schedule
from servetwin.loadtest.report.rows import Row, Sending, request_rows
from servetwin.loadtest.run.dispatcher import Dispatcher
from servetwin.loadtest.run.event_loop import LoopWatch, loop_name
from servetwin.loadtest.run.journal_lines import JournalLines
from servetwin.loadtest.run.node_clock import NodeClock
from servetwin.loadtest.run.progress import Progress, live_answer
from servetwin.loadtest.run.retrying_client import RetryingClient
from servetwin.loadtest.stream.read_ahead import AnswerReader, ReadAhead
from servetwin.loadtest.stream.stream_reader import StreamReader, TokenStream
from servetwin.loadtest.stream.whole_answer import WholeAnswerReader
from servetwin.workloads.request import Request


@dataclass(slots=True)
class WorkerResult:
    """What one process measured: a row per request of its schedule, and its own health.

    ``oversleeps_s`` are the delays of its event loop, ``cpu_share`` its CPU seconds per second.
    ``resent`` counts requests that were sent twice (``loadtest.http.transport``), ``too_late``
    followers that came due after the duration and are in no row. ``lost`` is set for a process that
    ended without a result: its requests have failed as client_lost. ``clocks`` are those of its
    machine before and after the load, where that is not this one.
    """

    rows: list[Row]
    first_messages: dict[str, str]
    oversleeps_s: Sequence[float] = field(default_factory=lambda: array("d"))
    cpu_share: float = 0.0
    interrupted: bool = False
    stopped: str | None = None
    resent: int = 0
    too_late: int = 0
    transport: str = ""
    event_loop: str = ""
    lost: bool = False
    clocks: Sequence[NodeClock] = ()


def _new_reader(endpoint: Endpoint) -> Callable[[Exchange], AnswerReader]:
    """Return what reads an answer of this endpoint: a stream, a whole answer or an embedding."""
    embedding = endpoint.api == "embeddings"
    if embedding or endpoint.options.whole:
        return partial(WholeAnswerReader, embedding=embedding)
    return StreamReader


class WorkerClient:
    """Sends a schedule from its zero on, can be interrupted at any time, and then has a result.

    An asynchronous context: on entry it opens connections and loads what a first request loads,
    before the clock starts. With ``journal``, its progress has the lines of a journal.
    """

    def __init__(
        self, endpoint: Endpoint, schedule: Schedule, options: LoadOptions, *, journal: bool = False
    ) -> None:
        self._endpoint = endpoint
        self._options = options
        self.schedule = schedule
        self._client, self._transport, self._transport_name = open_client(endpoint, options)
        post = posts_to(endpoint.url, self._client, self._transport)
        self._retrying = RetryingClient(post, options)
        self._watch = LoopWatch()
        self._journal = JournalLines(self._watch.stalls_ns) if journal else None
        self._ahead = ReadAhead(_new_reader(endpoint), self._note_end if journal else None)
        self._dispatcher = Dispatcher(self._send, self._ahead.judged, schedule, options)
        self._cpu_share = 0.0
        self._loop_name = loop_name()

    async def __aenter__(self) -> Self:
        warm_up = (
            self._client.get(f"{self._endpoint.base_url}/models")
            for _ in range(self._options.warm_connections)
        )
        await asyncio.gather(*warm_up, return_exceptions=True)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()

    async def run(self, zero: ClockZero) -> None:
        """Send the schedule and wait for every answer."""
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        with self._watch.running(), self._ahead.running():
            await self._dispatcher.run(zero)
        self._cpu_share = (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)
        if self._journal:
            self._ahead.read_rest()

    def requests(self) -> list[Request]:
        """Return the requests that were sent, or could not be."""
        return [sending.send.request for sending in self._dispatcher.sendings]

    def interrupt(self) -> None:
        """Send nothing more and cancel what is in flight."""
        self._dispatcher.interrupt()

    def progress(self) -> Progress:
        """Return the state now, with the answers read since the last call."""
        at = self._dispatcher
        elapsed_s = (time.perf_counter_ns() - at.zero_ns) / 1e9 if at.zero_ns else 0.0
        fresh = (live_answer(*read, at.zero_ns) for read in self._ahead.fresh() if read[0].sent_ns)
        return Progress(
            max(elapsed_s, 0.0),
            at.total,
            at.sent,
            at.ended,
            at.failed,
            tuple(fresh),
            self._journal.take() if self._journal else b"",
        )

    def result(self) -> WorkerResult:
        """Return what was measured; reads the rest of the answers first."""
        done = self._dispatcher
        rows, first_messages = request_rows(
            done.sendings,
            done.zero_ns,
            done.stopped or "",
            self._ahead.stream,
            self._watch.stalls_ns,
        )
        return WorkerResult(
            rows=rows,
            first_messages=first_messages,
            oversleeps_s=self._watch.oversleeps_s,
            cpu_share=self._cpu_share,
            interrupted=done.interrupted,
            stopped=done.stopped,
            resent=self._transport.resent if self._transport else 0,
            too_late=done.too_late,
            transport=self._transport_name,
            event_loop=self._loop_name,
        )

    async def _send(self, sending: Sending) -> None:
        self._ahead.begin(sending)
        await self._retrying.send(sending)

    def _note_end(self, exchange: Exchange, stream: TokenStream) -> None:
        assert self._journal
        assert isinstance(exchange, Sending)
        self._journal.add(exchange, stream, self._dispatcher.zero_ns)
