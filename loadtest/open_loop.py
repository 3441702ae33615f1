"""The open loop: each request goes out when its time has come, whatever became of the others."""

import asyncio
import time
from collections.abc import Sequence

import httpx

from loadtest.exchange import Exchange, run_exchange
from loadtest.schedule import Send, Zero


class OpenLoop:
    """Sends a schedule over one client and keeps one ``Exchange`` per request, in its order.

    Times are absolute: request i leaves at ``zero_ns + send_at_s`` on ``time.perf_counter_ns``, so
    that one late request makes no other late. After ``give_up_after`` refused connections in a row
    the endpoint is taken for dead, and the rest is not sent.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        sends: Sequence[Send],
        *,
        timeout_s: float,
        give_up_after: int,
    ) -> None:
        self._client = client
        self._url = url
        self._sends = sends
        self._timeout_s = timeout_s
        self._give_up_after = give_up_after
        self._connect_failures = 0
        self._dispatcher: asyncio.Task[None] | None = None
        self._in_flight: set[asyncio.Task[None]] = set()
        self.exchanges = [Exchange() for _ in sends]
        self.zero_ns = 0
        self.sent = 0
        self.ended = 0
        self.failed = 0
        self.stopped: str | None = None
        self.interrupted = False

    async def run(self, zero: Zero) -> None:
        """Send everything at its time after ``zero`` and wait for every answer.

        Sends nothing when it was interrupted before.
        """
        self.zero_ns = zero.perf_counter_ns
        if self.stopped:
            return
        async with asyncio.TaskGroup() as group:
            self._dispatcher = group.create_task(self._dispatch(group))

    def interrupt(self) -> None:
        """Send no more and give up what is in flight; what is recorded stays."""
        self.interrupted = True
        self._stop_sending("interrupted")
        for task in self._in_flight:
            task.cancel()

    async def _dispatch(self, group: asyncio.TaskGroup) -> None:
        for send, exchange in zip(self._sends, self.exchanges, strict=True):
            await self._sleep_until(send.send_at_s)
            task = group.create_task(self._send(send, exchange))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)

    async def _sleep_until(self, at_s: float) -> None:
        due_ns = self.zero_ns + round(at_s * 1e9)
        left_ns = due_ns - time.perf_counter_ns()
        while left_ns > 0:  # Twice where timers wake on the nearest millisecond: nobody is early.
            await asyncio.sleep(left_ns / 1e9)
            left_ns = due_ns - time.perf_counter_ns()

    async def _send(self, send: Send, exchange: Exchange) -> None:
        self.sent += 1
        await run_exchange(self._client, self._url, send.body, exchange, self._timeout_s)
        self.ended += 1
        self.failed += exchange.failure is not None
        self._watch_for_death(exchange)

    def _watch_for_death(self, exchange: Exchange) -> None:
        refused = exchange.failure is not None and exchange.failure.kind == "connect"
        self._connect_failures = self._connect_failures + 1 if refused else 0
        if self._connect_failures == self._give_up_after:
            row = f"{self._give_up_after} refused connections in a row"
            self._stop_sending(f"the endpoint was gone ({row})")

    def _stop_sending(self, reason: str) -> None:
        self.stopped = self.stopped or reason
        if self._dispatcher:
            self._dispatcher.cancel()
