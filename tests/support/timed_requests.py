"""Requests with their times, run on the wall clock in this process."""

import time
from collections.abc import Iterable

from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.core_process import CoreLoop
from servetwin.engine.core.messages import Add, Message, Refused, RequestFailed, Stop, TokenEvent
from servetwin.engine.sampling.sampling_params import SamplingParams

TimedRequest = tuple[float, str, list[int], SamplingParams]
"""(seconds after the start, request id, prompt token ids, parameters)."""


class TimedInbox:
    """A source of messages that are due, then ``Stop`` when all requests have ended."""

    def __init__(self, core: EngineCore, requests: Iterable[TimedRequest]) -> None:
        self._core = core
        self._start_s = core.clock()
        self._requests = sorted(requests, key=lambda request: request[0], reverse=True)

    def drain(self) -> list[Message]:
        now_s = self._core.clock() - self._start_s
        due: list[Message] = []
        while self._requests and self._requests[-1][0] <= now_s:
            due.append(Add(*self._requests.pop()[1:]))
        if not due and not self._requests and not self._core.unfinished:
            due.append(Stop())
        return due

    def wait(self, seconds: float | None) -> None:
        waits = [] if seconds is None else [seconds]
        if self._requests:
            waits.append(self._start_s + self._requests[-1][0] - self._core.clock())
        time.sleep(max(0.0, min(waits, default=0.0)))


def run_requests(core: EngineCore, requests: Iterable[TimedRequest]) -> list[TokenEvent]:
    """Run ``requests`` on the wall clock in this process; their tokens in the order of sampling.

    A refused request has no tokens.
    """
    events: list[TokenEvent | Refused | RequestFailed] = []
    CoreLoop(core, TimedInbox(core, requests), lambda update: events.extend(update.events)).run()
    return [event for event in events if isinstance(event, TokenEvent)]
