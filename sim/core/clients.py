"""Clients: send requests at the stamps of a trace, or some time after the previous answer."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from servetwin.policies.protocols import Refusal
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.environment import Environment
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.core.tick_queue import TickQueue
from servetwin.sim.step_times.step_time import SECONDS_PER_TICK, to_ticks
from servetwin.workloads.graphs.lanes import LaneSource
from servetwin.workloads.graphs.task_graph import TaskGraph
from servetwin.workloads.request import Request

# Receives a request and its row in the recorder.
Receive = Callable[[Request, int], None]
# A request, and its rank among those that are sent at the same time.
Ranked = tuple[int, Request]
Source = TaskGraph[Ranked] | LaneSource[Ranked]


@dataclass(eq=False)
class Clients:
    """Clients that send every request once, or cancel it.

    In a closed loop a source says which requests follow others (``workloads.graphs``); a parent
    ends when its client has the last token. All other requests are sent at ``arrival_s``. One API
    process receives the requests in the order in which they were sent.
    """

    env: Environment
    recorder: Recorder
    receive: Receive
    on_arrival: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        self._sendings, self._inbox = TickQueue(self.env), TickQueue(self.env)
        self._received_tick = 0
        self._roots: Iterator[Ranked] = iter(())
        self._source: Source | None = None

    def start(self, roots: Iterable[Ranked], source: Source | None) -> None:
        """Begin to send ``roots``, in order of arrival, and what follows them.

        Without a source they have their ranks as rows in the recorder.
        """
        self._roots, self._source = iter(roots), source
        self._post_root()

    def has_more(self) -> bool:
        """Return whether any request is to be sent, as far as is known, or on its way."""
        return len(self._sendings) + len(self._inbox) > 0

    def ended(self, seq: Sequence, refusal: Refusal | None) -> None:
        """Send or cancel the followers of a request that finished, or was refused."""
        source, request_id = self._source, seq.request_id
        if source is None or not source.decides(request_id):
            return
        if refusal is None:
            at_s = self.recorder.last_token_s(seq.number)
        else:
            at_s = self._sendings.soon(0) * SECONDS_PER_TICK
        self._release(source, request_id, at_s, answered=refusal is None)

    def _post_root(self) -> None:
        """Post the next root only, so that a long trace is read as it is sent."""
        for rank, request in self._roots:
            sending = partial(self._send, request, request.arrival_s, rank)
            self._sendings.post(to_ticks(request.arrival_s), rank, sending)
            return

    def _release(self, source: Source, request_id: str, at_s: float, *, answered: bool) -> None:
        for (rank, request), sent_s in source.ended(request_id, at_s, answered):
            tick = self._sendings.soon(to_ticks(sent_s))
            self._sendings.post(tick, rank, partial(self._send, request, sent_s))

    def _send(self, request: Request, sent_s: float, root: int | None = None) -> None:
        row = self.recorder.scheduled(request, sent_s) if root is None or self._source else root
        if root is not None:
            self._post_root()
        if self._source and (reason := self._source.why_not_sent(request.request_id)):
            self.recorder.errors[row] = f"cancelled: {reason}"
            self._release(self._source, request.request_id, sent_s, answered=False)
        elif (api := self.recorder.api) is None:
            self._arrive(request, row)
        else:
            received_s = sent_s + api.request_in_s(request.prompt_tokens)
            self._received_tick = max(self._received_tick, to_ticks(received_s))
            self._inbox.post(self._received_tick, row, partial(self._arrive, request, row))

    def _arrive(self, request: Request, row: int) -> None:
        self.receive(request, row)
        if self.on_arrival and row % 1000 == 999:
            self.on_arrival(row + 1)
