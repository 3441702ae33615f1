"""The schedule is a list, not a loop: who is sent when, and with which bytes, before the start."""

from dataclasses import dataclass

from loadtest.endpoint import Endpoint
from workloads.errors import LoadTestError
from workloads.request import Request
from workloads.trace import Trace


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
    ordered = sorted(trace, key=lambda request: request.arrival_s)
    return [Send(request.arrival_s, request, endpoint.body(request)) for request in ordered]


def oversized(trace: Trace, endpoint: Endpoint) -> int:
    """How many requests are longer than the endpoint says it can take."""
    if endpoint.max_model_len is None:
        return 0
    return sum(request.total_tokens > endpoint.max_model_len for request in trace)
