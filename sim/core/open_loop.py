"""Clients that send at the stamps of a trace, to servers that need no events."""

from collections.abc import Callable, Iterable

from sim.core.recorder import Recorder
from sim.ticks import to_ticks
from workloads.request import Request

ReceiveAt = Callable[[int, Request, int], None]
"""Receives, at a tick, a request and its row in the recorder."""


def send_at_stamps(
    requests: Iterable[Request],
    recorder: Recorder,
    receive_at: ReceiveAt,
    on_arrival: Callable[[int], None] | None = None,
) -> None:
    """Send ``requests``, which are in order of arrival, through one API process, in this order."""
    api, now = recorder.api, 0
    for request in requests:
        row = recorder.scheduled(request, request.arrival_s)
        received_s = request.arrival_s
        if api is not None:
            received_s += api.request_in_s(request.prompt_tokens)
        now = max(now, to_ticks(received_s))
        receive_at(now, request, row)
        if on_arrival and row % 1000 == 999:
            on_arrival(row + 1)
