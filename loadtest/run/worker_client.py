"""One process' share of a load test: its client, its schedule, its watch, and what it measured."""

import asyncio
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from loadtest.endpoint import Endpoint
from loadtest.http.exchange import Exchange
from loadtest.http.http_client import open_client
from loadtest.options import LoadOptions, Progress
from loadtest.plan.schedule import ClockZero, Schedule, ScheduledRequest
from loadtest.report.records import Row, request_rows
from loadtest.run.dispatcher import Dispatcher
from loadtest.run.event_loop import loop_name
from loadtest.run.loop_watch import LoopWatch
from loadtest.run.retrying_client import RetryingClient
from loadtest.stream.live_answers import live_answer
from loadtest.stream.read_ahead import ReadAhead


@dataclass(slots=True)
class WorkerResult:
    """What one process measured: a row per request of its schedule, and how it fared itself.

    ``resent`` counts requests that went out twice (``loadtest.http.transport``), ``too_late``
    followers that came due after the duration and are in no row. ``lost`` is set for a process that
    never handed in its part: its requests have failed as client_lost.
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


class WorkerClient:
    """Sends a schedule when told the zero; can be interrupted at any time; then read out.

    An asynchronous context: it opens connections, and loads what is loaded on a first request,
    before the clock starts.
    """

    def __init__(self, endpoint: Endpoint, schedule: Schedule, options: LoadOptions) -> None:
        self._endpoint = endpoint
        self._options = options
        self._client, self._transport, self._way = open_client(endpoint, options)
        self._asker = RetryingClient(self._client, endpoint.url, options)
        self._ahead = ReadAhead()
        self._dispatcher = Dispatcher(self._ask, self._ahead.judged, schedule, options)
        self._watch = LoopWatch()
        self._cpu_share = 0.0
        self._loop_name = loop_name()

    async def __aenter__(self) -> Self:
        asks = (
            self._client.get(f"{self._endpoint.base_url}/models")
            for _ in range(self._options.warm_connections)
        )
        await asyncio.gather(*asks, return_exceptions=True)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()

    async def run(self, zero: ClockZero) -> None:
        """Send everything and wait for every answer."""
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        with self._watch.running(), self._ahead.running():
            await self._dispatcher.run(zero)
        self._cpu_share = (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)

    def interrupt(self) -> None:
        """Send no more and give up what is in flight."""
        self._dispatcher.interrupt()

    def progress(self) -> Progress:
        """Where it stands."""
        at = self._dispatcher
        elapsed_s = (time.perf_counter_ns() - at.zero_ns) / 1e9 if at.zero_ns else 0.0
        fresh = (live_answer(*read, at.zero_ns) for read in self._ahead.fresh() if read[0].sent_ns)
        return Progress(max(elapsed_s, 0.0), at.total, at.sent, at.ended, at.failed, tuple(fresh))

    def part(self) -> WorkerResult:
        """What was measured; what came is parsed as far as it is not yet."""
        done = self._dispatcher
        rows, first_messages = request_rows(
            done.sends, done.exchanges, done.zero_ns, done.stopped or "", self._ahead.stream
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
            transport=self._way,
            event_loop=self._loop_name,
        )

    async def _ask(self, send: ScheduledRequest, exchange: Exchange) -> None:
        self._ahead.begin(exchange)
        await self._asker.ask(send, exchange)
