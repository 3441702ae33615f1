"""An answer on its way out: each event at its own time, whatever became of the one before."""

import asyncio
import time
from collections.abc import Callable, Iterator

from loadtest.mock.mock_answer import TimedWrite
from loadtest.mock.timeline import Timeline
from loadtest.mock.truth import Truth


class Writing:
    """Writes the events of one answer, notes the stamps, and calls ``on_end`` after the last."""

    def __init__(
        self,
        events: Iterator[TimedWrite],
        transport: asyncio.Transport,
        timeline: Timeline,
        due_ns: Callable[[float], int],
        truth: Truth | None,
        on_end: Callable[[], None],
    ) -> None:
        self._events = events
        self._transport = transport
        self._timeline = timeline
        self._due_ns = due_ns
        self._truth = truth
        self._on_end = on_end
        self._next()

    def _next(self) -> None:
        event = next(self._events, None)
        if event is None:
            self._on_end()
            return
        self._event, self._event_due_ns = event, self._due_ns(event.at_s)
        self._timeline.at(self._event_due_ns, self._write)

    def _write(self) -> None:
        if self._transport.is_closing():
            return
        _, data, tokens = self._event
        written_ns = time.perf_counter_ns()
        self._transport.write(data)
        if self._truth and tokens:
            self._truth.wrote(tokens, self._event_due_ns, written_ns)
        self._next()
