"""The schedule of a load test: the time and the bytes of every request, made before the start.

A follower has its bytes before the start too; its time is known when its parent has ended.
"""

import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.options import HangUp, LoadOptions
from servetwin.loadtest.plan.repeats import Repeats
from servetwin.loadtest.plan.request_dependencies import descendants, roots_and_followers
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

PEAK_WINDOW_S = 10.0
USER_TOKENS_PER_S = 100.0
"""Tokens per second to one user; most servers stream fewer, and people read 10."""


class ClockZero(NamedTuple):
    """The start of a schedule, on ``time.perf_counter_ns`` and in Unix time.

    All processes of a machine share ``time.perf_counter_ns``.
    """

    perf_counter_ns: int
    unix_s: float

    @classmethod
    def after(cls, lead_s: float) -> "ClockZero":
        """Return the moment ``lead_s`` seconds from now."""
        return cls(time.perf_counter_ns() + round(lead_s * 1e9), time.time() + lead_s)

    def on_clock(self, offset_ns: int) -> "ClockZero":
        """Return the same moment on a clock that reads so much more."""
        return self._replace(perf_counter_ns=self.perf_counter_ns + offset_ns)


class ScheduledRequest(NamedTuple):
    """A request to send ``send_at_s`` seconds after the start, with its HTTP body.

    ``send_at_s`` of a follower is its arrival in the trace until its parent has ended.
    """

    send_at_s: float
    request: Request
    body: bytes
    hang_up: HangUp | None = None
    model: str = ""


class Schedule:
    """The ``roots`` by their time, and the followers of each request."""

    def __init__(
        self, roots: list[ScheduledRequest], followers: Mapping[str, list[ScheduledRequest]]
    ) -> None:
        self.roots = roots
        self._followers = dict(followers)

    @property
    def waiting(self) -> int:
        """The number of followers that have no time yet."""
        return sum(map(len, self._followers.values()))

    @property
    def exhausted(self) -> bool:
        """Whether no followers are left."""
        return not self._followers

    def after(self, send: ScheduledRequest) -> list[ScheduledRequest]:
        """Take the followers of a request out of the schedule."""
        return self._followers.pop(send.request.request_id, [])


class EndlessSchedule(Schedule):
    """A schedule without an end: every root is a user, whose requests start over when all are sent.

    ``lines`` are the requests of each user.
    """

    def __init__(self, lines: list[Iterator[ScheduledRequest]]) -> None:
        super().__init__([next(line) for line in lines], {})
        tenants = (root.request.tenant for root in self.roots)
        self._lines = dict(zip(tenants, lines, strict=True))

    @property
    def exhausted(self) -> bool:
        """Always false."""
        return False

    def after(self, send: ScheduledRequest) -> list[ScheduledRequest]:
        """Take the next request of the same user."""
        return [next(self._lines[send.request.tenant])]


def build_schedule(
    trace: Trace, endpoint: Endpoint, options: LoadOptions | None = None
) -> Schedule:
    """Schedule every request of the trace; roots at the same time keep the order of the trace.

    Raises ``LoadTestError`` for a trace without requests, and where a request waits for itself.
    """
    if not len(trace):
        raise LoadTestError(f"{trace.source}: there is no request to send")
    options = options or LoadOptions()
    send = partial(_send, endpoint=endpoint, options=options)
    roots, followers = roots_and_followers(trace, closed_loop=options.follows(trace))
    if options.endless:
        repeats = Repeats(trace)
        lines = [[send(each) for each in (root, *descendants(root, followers))] for root in roots]
        return EndlessSchedule([_endless(line, repeats, endpoint, options) for line in lines])
    ready = {parent: [send(each) for each in listed] for parent, listed in followers.items()}
    return Schedule([send(root) for root in roots], ready)


def _send(request: Request, endpoint: Endpoint, options: LoadOptions) -> ScheduledRequest:
    hang_up = options.hang_up(request.request_id)
    model = endpoint.model_of(request)
    return ScheduledRequest(request.arrival_s, request, endpoint.body(request), hang_up, model)


def _endless(
    line: list[ScheduledRequest], repeats: Repeats, endpoint: Endpoint, options: LoadOptions
) -> Iterator[ScheduledRequest]:
    """Yield the requests of one user, then the same again and again with other prompts."""
    yield from line
    for number in count(1):
        for send in line:
            yield _send(repeats.again(send.request, number), endpoint, options)


def due(send: ScheduledRequest, parent_ended_s: float) -> ScheduledRequest:
    """Return a follower with its time, now that its parent has ended."""
    return send._replace(send_at_s=parent_ended_s + (send.request.delay_s or 0.0))


def expected_peak_tokens_per_s(trace: Trace, options: LoadOptions) -> float:
    """Estimate the most chunks per second that the servers will send back.

    In a closed loop of users this is 100 for each of them, else the most output tokens per second
    that arrive within ten seconds of the trace: a server that keeps up finishes as many tokens per
    second as arrive, however long each request takes.
    """
    if options.concurrency is not None:
        return options.concurrency * USER_TOKENS_PER_S
    if not len(trace):
        return 0.0
    arrivals_s = np.array([request.arrival_s for request in trace])
    tokens = np.cumsum([0, *(request.output_tokens for request in trace)])
    ends = np.searchsorted(arrivals_s, arrivals_s + PEAK_WINDOW_S)
    return float((tokens[ends] - tokens[:-1]).max()) / PEAK_WINDOW_S
