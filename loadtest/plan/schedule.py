"""The schedule of a load test: the time and the bytes of every request, made before the start.

A follower's time is known when its parents have ended. It has its bytes before the start too, but
on lanes, whose prompts would not fit into memory: they are made when its time is known.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.options import HangUp, LoadOptions
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.graphs.lane_rules import LaneRules
from servetwin.workloads.graphs.lanes import LaneSource
from servetwin.workloads.graphs.task_graph import TaskGraph
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

PEAK_WINDOW_S = 10.0
# Tokens per second to one user; most servers stream fewer, and people read 10.
USER_TOKENS_PER_S = 100.0


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
    """A request to send ``send_at_s`` seconds after the start, with its HTTP body, once it is made.

    ``send_at_s`` of a follower is its arrival in the trace until its parents have ended.
    """

    send_at_s: float
    request: Request
    body: bytes
    hang_up: HangUp | None = None
    model: str = ""


class Schedule:
    """The ``roots`` by their time (ties keep their order), and what follows other requests.

    Nothing is sent from ``end_s`` on.
    """

    def __init__(
        self,
        source: TaskGraph[ScheduledRequest] | LaneSource[ScheduledRequest],
        body_of: Callable[[Request], bytes],
        end_s: float | None = None,
    ) -> None:
        self.source = source
        self._body_of = body_of
        self.roots = [self.made(each) for each in sorted(source.roots, key=attrgetter("send_at_s"))]
        # Whether there are always more followers.
        self.endless = not isinstance(source, TaskGraph)
        self._end_s = inf if end_s is None else end_s

    @property
    def end_s(self) -> float:
        """When the last request may be sent; of lanes, inf until their measured phase begins."""
        return self.source.end_s if isinstance(self.source, LaneSource) else self._end_s

    @property
    def waiting(self) -> int:
        """The number of followers that have no time yet."""
        return self.source.waiting

    def decides(self, send: ScheduledRequest) -> bool:
        """Return whether it matters to others how a request ended."""
        return self.source.decides(send.request.request_id)

    def ended(
        self, send: ScheduledRequest, at_s: float, *, answered: bool
    ) -> list[ScheduledRequest]:
        """End a request; return the followers that wait no more, with their times."""
        ended = self.source.ended(send.request.request_id, at_s, answered)
        return [follower._replace(send_at_s=send_at_s) for follower, send_at_s in ended]

    def made(self, send: ScheduledRequest) -> ScheduledRequest:
        """Return a request with its body."""
        return send if send.body else send._replace(body=self._body_of(send.request))

    def why_not_sent(self, send: ScheduledRequest) -> str | None:
        """Return why a request whose time has come is not sent; None where it is."""
        return self.source.why_not_sent(send.request.request_id)


def build_schedule(
    trace: Trace, endpoint: Endpoint, options: LoadOptions | None = None
) -> Schedule:
    """Schedule every request of the trace.

    Raises ``LoadTestError`` for a trace without requests, ``TraceError`` where a request waits for
    itself.
    """
    if not len(trace):
        raise LoadTestError(f"{trace.source}: there is no request to send")
    options = options or LoadOptions()
    planned = partial(_planned, endpoint=endpoint, options=options)
    if options.endless:
        users = sum(not request.parent_ids for request in trace)
        rules = LaneRules(users, inf, 0.0, 0.0, options.duration_s or inf, users=True)
        trace = replace(trace, lanes=rules)
    if trace.lanes:
        longest = endpoint.max_model_len
        lanes = LaneSource(trace, planned, context_tokens=longest, fail_fast=options.fail_fast)
        return Schedule(lanes, endpoint.body)
    closed_loop, fail_fast = options.follows(trace), options.fail_fast
    request_of = attrgetter("request")
    sends = (planned(each)._replace(body=endpoint.body(each)) for each in trace)
    graph = TaskGraph(sends, request_of, closed_loop=closed_loop, fail_fast=fail_fast)
    return Schedule(graph, endpoint.body, options.duration_s)


def _planned(request: Request, endpoint: Endpoint, options: LoadOptions) -> ScheduledRequest:
    hang_up = options.hang_up(request.request_id)
    return ScheduledRequest(request.arrival_s, request, b"", hang_up, endpoint.model_of(request))


def expected_peak_tokens_per_s(trace: Trace, options: LoadOptions) -> float:
    """Estimate the most chunks per second that the servers will send back.

    With users or lanes this is 100 for each of them, else the most output tokens per second that
    arrive within ten seconds of the trace: a server that keeps up finishes as many tokens per
    second as arrive, however long each request takes.
    """
    if users := trace.lanes.lanes if trace.lanes else options.concurrency:
        return users * USER_TOKENS_PER_S
    if not len(trace):
        return 0.0
    arrivals_s = np.array([request.arrival_s for request in trace])
    tokens = np.cumsum([0, *(request.output_tokens for request in trace)])
    ends = np.searchsorted(arrivals_s, arrivals_s + PEAK_WINDOW_S)
    return float((tokens[ends] - tokens[:-1]).max()) / PEAK_WINDOW_S
