"""Clients that send at the stamps of a trace, to servers that need no events."""

from collections.abc import Callable, Iterable

from servetwin.sim.core.environment import NEVER
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.step_times.step_time import ApiLatency
from servetwin.sim.ticks import to_ticks
from servetwin.workloads.request import Request

ReceiveAt = Callable[[int, int, Request, int], None]
"""Receives, at a tick before that of the next request, a request and its row in the recorder."""


def send_at_stamps(
    requests: Iterable[Request],
    recorder: Recorder,
    receive_at: ReceiveAt,
    on_arrival: Callable[[int], None] | None = None,
) -> None:
    """Send ``requests``, which are in order of arrival, through one API process, in this order."""
    coming, api = iter(requests), recorder.api
    request = next(coming, None)
    now = 0 if request is None else received_tick(request, api, 0)
    while request is not None:
        following = next(coming, None)
        then = NEVER if following is None else received_tick(following, api, now)
        row = recorder.scheduled(request, request.arrival_s)
        receive_at(now, then, request, row)
        if on_arrival and row % 1000 == 999:
            on_arrival(row + 1)
        request, now = following, then


def received_tick(request: Request, api: ApiLatency | None, now: int) -> int:
    """Return when the servers have a request that comes after ``now``."""
    received_s = request.arrival_s
    if api is not None:
        received_s += api.request_in_s(request.prompt_tokens)
    tick = to_ticks(received_s)
    return tick if tick > now else now
