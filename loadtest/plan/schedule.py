"""The schedule is a list, not a loop: who is sent when, and with which bytes, before the start.

What follows an answer has its bytes ready as well, and its time when the answer is there.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import numpy as np

from loadtest.endpoint import Endpoint
from loadtest.options import LoadOptions
from loadtest.plan.cancellation import HangUp
from loadtest.plan.repeats import Repeats
from loadtest.plan.request_dependencies import descendants, roots_and_followers
from workloads.errors import LoadTestError
from workloads.request import Request
from workloads.trace import Trace

PEAK_WINDOW_S = 10.0
USER_TOKENS_PER_S = 100.0
"""More than most servers stream to one user: people read 10."""


@dataclass(frozen=True, slots=True)
class ClockZero:
    """The start of a schedule: on ``time.perf_counter_ns``, which the processes of one machine
    share, and on the clock on the wall."""

    perf_counter_ns: int
    unix_s: float

    @classmethod
    def after(cls, lead_s: float) -> "ClockZero":
        """``lead_s`` seconds from now."""
        return cls(time.perf_counter_ns() + round(lead_s * 1e9), time.time() + lead_s)


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """One request to send ``send_at_s`` seconds after the start, its body ready.

    A follower has the time of its arrival in the trace until its own is known.
    """

    send_at_s: float
    request: Request
    body: bytes
    hang_up: HangUp | None = None


class Schedule:
    """``roots`` by their time, and what is to be sent after each."""

    def __init__(
        self, roots: list[ScheduledRequest], followers: dict[str, list[ScheduledRequest]]
    ) -> None:
        self.roots = roots
        self._followers = followers

    @property
    def waiting(self) -> int:
        """How many followers have no time yet."""
        return sum(map(len, self._followers.values()))

    @property
    def exhausted(self) -> bool:
        """Whether nothing follows any more, whatever ends."""
        return not self._followers

    def after(self, send: ScheduledRequest) -> list[ScheduledRequest]:
        """What follows a request; each is told once."""
        return self._followers.pop(send.request.request_id, [])


class EndlessSchedule(Schedule):
    """Every root is a user, and every user's line of requests begins again when it is over."""

    def __init__(self, lines: list[Iterator[ScheduledRequest]]) -> None:
        super().__init__([next(line) for line in lines], {})
        self._lines = {
            root.request.tenant: line for root, line in zip(self.roots, lines, strict=True)
        }

    @property
    def exhausted(self) -> bool:
        """Never."""
        return False

    def after(self, send: ScheduledRequest) -> list[ScheduledRequest]:
        """The next one of the same user."""
        return [next(self._lines[send.request.tenant])]


def build_schedule(
    trace: Trace, endpoint: Endpoint, options: LoadOptions | None = None
) -> Schedule:
    """Every request of the trace; roots by their time, ties keep the order of the trace.

    Raises ``LoadTestError`` for a trace without requests, or one that waits for itself.
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
    cancelled = options.cancellation
    hang_up = cancelled.of(request.request_id, options.seed) if cancelled else None
    return ScheduledRequest(request.arrival_s, request, endpoint.body(request), hang_up)


def _endless(
    line: list[ScheduledRequest], repeats: Repeats, endpoint: Endpoint, options: LoadOptions
) -> Iterator[ScheduledRequest]:
    """The requests of one user, and then the same again with other prompts."""
    yield from line
    for number in count(1):
        for send in line:
            yield _send(repeats.again(send.request, number), endpoint, options)


def due(send: ScheduledRequest, parent_ended_s: float) -> ScheduledRequest:
    """A follower with its time."""
    return replace(send, send_at_s=parent_ended_s + (send.request.delay_s or 0.0))


def expected_peak_tokens_per_s(trace: Trace, options: LoadOptions) -> float:
    """Chunks per second that will come back: by users in a closed loop, else by the trace."""
    if options.concurrency is not None:
        return options.concurrency * USER_TOKENS_PER_S
    return peak_tokens_per_s(trace)


def peak_tokens_per_s(trace: Trace) -> float:
    """The most output tokens per second that the trace asks for over ten seconds of arrivals.

    An estimate of the chunks per second that will come back: as many leave a server as arrive,
    however long each takes, unless it falls behind.
    """
    if not len(trace):
        return 0.0
    arrivals_s = np.array([request.arrival_s for request in trace])
    tokens = np.cumsum([0, *(request.output_tokens for request in trace)])
    ends = np.searchsorted(arrivals_s, arrivals_s + PEAK_WINDOW_S)
    return float((tokens[ends] - tokens[:-1]).max()) / PEAK_WINDOW_S


def oversized(trace: Trace, endpoint: Endpoint) -> int:
    """How many requests are longer than the endpoint says it can take."""
    if endpoint.max_model_len is None:
        return 0
    return sum(request.total_tokens > endpoint.max_model_len for request in trace)
