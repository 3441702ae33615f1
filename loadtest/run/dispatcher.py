"""The dispatcher: sends each root at its time, and each follower after its parents have ended."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import inf

from servetwin.loadtest.http.exchange import ORPHANED, Exchange, Failure
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.plan.schedule import ClockZero, Schedule, ScheduledRequest
from servetwin.loadtest.report.rows import Sending
from servetwin.loadtest.stream.token_events import TokenStream
from servetwin.workloads.request import CANCELLED_BY_TEST

# Sends a request and records its answer.
SendRequest = Callable[[Sending], Awaitable[None]]
# Reads the tokens of an answer that has ended.
JudgeAnswer = Callable[[Exchange], TokenStream]


# The resolution of timers. Requests due within it of the one before leave together after it: the
# event loop would turn without a pause until each is due, and leave no CPU to a server beside it.
TICK_NS = 1_000_000
# After a refused connection followers wait so long: a server that is gone is not flooded.
RECONNECT_S = 0.1


class Dispatcher:
    """Sends a schedule and keeps one ``Sending`` per request, in the order they became known.

    Times are absolute: a root leaves at ``zero_ns + send_at_s`` on ``time.perf_counter_ns``, so
    that one late request makes no other late. A graph says when a follower is due, and which are
    not sent for want of an answer (``workloads.graphs``). A user goes on after a failure
    (``LoadOptions.concurrency``). Followers wait ``RECONNECT_S`` where there was no connection.
    Where every connection is refused for ``give_up_after_s``, the endpoint counts as gone, and the
    rest is not sent.
    """

    def __init__(
        self,
        send_request: SendRequest,
        judge: JudgeAnswer,
        schedule: Schedule,
        options: LoadOptions,
    ) -> None:
        self._send_request = send_request
        self._judge = judge
        self._schedule = schedule
        self._options = options
        self._watches_the_end = False
        self._refused_since_ns: int | None = None
        self._dispatcher: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Task[None]] = set()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._making = asyncio.Lock()
        self._drain: asyncio.TimerHandle | None = None
        self._given_up = "when interrupted"
        self.sendings = [Sending(send=send) for send in schedule.roots]
        self.zero_ns = 0
        self.sent = 0
        self.ended = 0
        self.failed = 0
        # Followers that came due after the duration; they are in no record.
        self.too_late = 0
        self.stopped: str | None = None
        self.interrupted = False

    @property
    def total(self) -> int:
        """The number of requests known so far."""
        return len(self.sendings) + self._schedule.waiting

    async def run(self, zero: ClockZero) -> None:
        """Send every request at its time after ``zero`` and wait for every answer.

        Sends nothing after an interruption.
        """
        self.zero_ns = zero.perf_counter_ns
        if not self.stopped:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._dispatcher = group.create_task(self._dispatch())
                self._watch_the_end()
        if self._drain:
            self._drain.cancel()
        self._settle_the_rest()

    def interrupt(self) -> None:
        """Send nothing more and cancel what is in flight; what is recorded stays."""
        self.interrupted = True
        self._stop_sending("interrupted")
        self._give_up()

    def _watch_the_end(self) -> None:
        """Drain at the end of the schedule, as soon as it is known."""
        if not self._watches_the_end and (end_s := self._schedule.end_s) < inf:
            self._watches_the_end = True
            loop, left_s = asyncio.get_running_loop(), end_s - self._now_s()
            loop.call_later(left_s, self._drain_if_all_is_sent)

    async def _dispatch(self) -> None:
        for root in list(self.sendings):  # Followers come behind them meanwhile.
            await self._start_when_due(root)
        self._dispatcher = None
        self._drain_if_all_is_sent()

    async def _start_when_due(self, sending: Sending) -> None:
        tick_ns = TICK_NS
        due_ns = self.zero_ns + round(sending.send.send_at_s * 1e9)
        left_ns = due_ns - time.perf_counter_ns()
        while left_ns > 0:  # Twice where timers wake at the nearest millisecond: never early.
            await asyncio.sleep(max(left_ns, tick_ns) / 1e9)
            left_ns, tick_ns = due_ns - time.perf_counter_ns(), 0
        if reason := self._schedule.why_not_sent(sending.send):
            self._release(self._orphan(sending, reason))
            return
        task = self._group.create_task(self._send(sending))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _send(self, sending: Sending) -> None:
        self.sent += 1
        try:
            await self._send_request(sending)
        except asyncio.CancelledError:
            sending.failure = Failure("cancelled", f"in flight {self._given_up}")
            raise
        finally:
            sending.ended = True
            sending.send = sending.send._replace(body=b"")  # long prompts are most of the memory
        self.ended += 1
        failure = sending.failure
        self.failed += failure is not None and failure.kind != CANCELLED_BY_TEST
        self._watch_for_death(sending)
        self._follow(sending)

    def _watch_for_death(self, exchange: Exchange) -> None:
        """Stop where no request has got a connection for too long.

        An answer to a request that was sent before the first refusal says nothing of connections.
        """
        since_ns, sent_ns = self._refused_since_ns, exchange.sent_ns or 0
        if not _is_refused(exchange):
            if since_ns is not None and sent_ns > since_ns:
                self._refused_since_ns = None
            return
        if since_ns is None:
            self._refused_since_ns = sent_ns
        elif self._options.give_up_after_s is not None:
            limit_s = self._options.give_up_after_s
            if sent_ns - since_ns >= limit_s * 1e9:
                self._stop_sending(f"the endpoint was gone (no connection for {limit_s:g} s)")

    def _follow(self, parent: Sending) -> None:
        """Give the followers of a request that has ended their time, or orphan them."""
        if self.stopped:
            return  # Followers are settled at the end.
        now_s = self._now_s()
        is_user = self._options.concurrency is not None
        if is_user or self._schedule.decides(parent.send):
            answered = is_user or self._judge(parent).failure is None
            ready_s = now_s + RECONNECT_S if _is_refused(parent) else now_s
            self._release(self._schedule.ended(parent.send, ready_s, answered=answered))
            self._watch_the_end()
        self._drain_if_all_is_sent()

    def _release(self, followers: list[ScheduledRequest]) -> None:
        """Give followers their time, or orphan them and theirs."""
        for send in followers:  # grows by those of the orphans
            if reason := self._schedule.why_not_sent(send):
                followers += self._orphan(self._record(send), reason)
            else:
                self._wait(send)

    def _orphan(self, sending: Sending, reason: str) -> list[ScheduledRequest]:
        """Record a request as not sent; return the followers that wait no more."""
        sending.failure = Failure(ORPHANED, f"not sent: {reason}")
        return self._schedule.ended(sending.send, self._now_s(), answered=False)

    def _wait(self, send: ScheduledRequest) -> None:
        if send.send_at_s >= self._schedule.end_s:
            self._count_too_late(1)
            return
        task = self._group.create_task(self._make_and_start(self._record(send)))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        task.add_done_callback(lambda _: self._drain_if_all_is_sent())

    async def _make_and_start(self, sending: Sending) -> None:
        if not sending.send.body:
            async with self._making:  # one at a time: others may be due in between
                await asyncio.sleep(0)
                sending.send = self._schedule.made(sending.send)
        await self._start_when_due(sending)

    def _record(self, send: ScheduledRequest) -> Sending:
        self.sendings.append(sending := Sending(send=send))
        return sending

    def _settle_the_rest(self) -> None:
        """Settle the followers that are left: due too late, or never sent."""
        if self._options.duration_s is not None or self._schedule.endless:
            self._count_too_late(self._schedule.waiting)
            return
        for sending in self.sendings:  # Grows meanwhile by the followers.
            send = sending.send
            for follower in self._schedule.ended(send, send.send_at_s, answered=True):
                self._record(follower._replace(send_at_s=send.send_at_s))

    def _count_too_late(self, followers: int) -> None:
        """Count followers of conversations; users always have one more request."""
        if self._options.concurrency is None:
            self.too_late += followers

    def _now_s(self) -> float:
        return (time.perf_counter_ns() - self.zero_ns) / 1e9

    def _drain_if_all_is_sent(self) -> None:
        """Start the drain once the last request is sent: answers then have ``drain_s`` to come."""
        if self._options.drain_s is None or self._drain:
            return
        no_roots = self._dispatcher is None and not self._waiting
        is_exhausted = not (self._schedule.endless or self._schedule.waiting)
        no_followers = is_exhausted or self._now_s() >= self._schedule.end_s
        if self.stopped or (no_roots and no_followers):
            loop = asyncio.get_running_loop()
            self._drain = loop.call_later(self._options.drain_s, self._end_drain)

    def _end_drain(self) -> None:
        self._given_up = f"{self._options.drain_s:g} s after the last send"
        self._give_up()

    def _give_up(self) -> None:
        for task in self._in_flight:
            task.cancel()

    def _stop_sending(self, reason: str) -> None:
        self.stopped = self.stopped or reason
        for task in (self._dispatcher, *self._waiting):
            if task:
                task.cancel()
        self._drain_if_all_is_sent()


def _is_refused(exchange: Exchange) -> bool:
    return exchange.failure is not None and exchange.failure.kind == "connect"
