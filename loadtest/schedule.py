"""The schedule is a list, not a loop: who is sent when, and with which bytes, before the start."""

import time
from dataclasses import dataclass

import numpy as np

from loadtest.endpoint import Endpoint
from workloads.errors import LoadTestError
from workloads.request import Request
from workloads.trace import Trace

PEAK_WINDOW_S = 10.0


@dataclass(frozen=True, slots=True)
class Zero:
    """The start of a schedule: on ``time.perf_counter_ns``, which the processes of one machine
    share, and on the clock on the wall."""

    perf_counter_ns: int
    unix_s: float

    @classmethod
    def after(cls, lead_s: float) -> "Zero":
        """``lead_s`` seconds from now."""
        return cls(time.perf_counter_ns() + round(lead_s * 1e9), time.time() + lead_s)


@dataclass(frozen=True, slots=True)
class Send:
    """One request to send ``send_at_s`` seconds after the start, its body ready."""

    send_at_s: float
    request: Request
    body: bytes


def build_schedule(trace: Trace, endpoint: Endpoint) -> list[Send]:
    """Every request of the trace by its time; ties keep the order of the trace.

    Raises ``LoadTestError`` for a trace without requests.
    """
    if not len(trace):
        raise LoadTestError(f"{trace.source}: there is no request to send")
    return [
        Send(request.arrival_s, request, endpoint.body(request)) for request in by_arrival(trace)
    ]


def by_arrival(trace: Trace) -> list[Request]:
    """The order in which requests are sent; ties keep that of the trace."""
    return sorted(trace, key=lambda request: request.arrival_s)


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
