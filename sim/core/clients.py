"""Clients: send requests at the stamps of a trace, or some time after the previous answer."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from servetwin.policies.protocols import Refusal
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.environment import Environment
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.core.tick_queue import TickQueue
from servetwin.sim.step_times.step_time import SECONDS_PER_TICK, to_ticks
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.parents import broken_links
from servetwin.workloads.request import Request

Receive = Callable[[Request, int], None]
"""Receives a request and its row in the recorder."""


class _Sending(NamedTuple):
    request: Request
    sent_s: float
    is_root: bool = True
    cancelled: bool = False


@dataclass(eq=False)
class Clients:
    """Clients that send every request once, or cancel it.

    In a closed loop a follower (a request with ``parent_id`` and ``delay_s``) is sent ``delay_s``
    after its client has the last token of the parent. If that token never comes, the follower and
    the followers of the follower are cancelled. All other requests are sent at ``arrival_s``, as
    are followers whose parent is not in the trace. One API process receives the requests in the
    order in which they were sent.
    """

    env: Environment
    recorder: Recorder
    receive: Receive
    on_arrival: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        self._sendings: TickQueue[_Sending] = TickQueue(self.env, self._send)
        self._inbox: TickQueue[tuple[Request, int]] = TickQueue(self.env, self._arrive)
        self._received_tick = 0
        self._roots: Iterator[tuple[int, Request]] = iter(())
        self._followers: dict[str, list[tuple[int, Request]]] = {}

    def start(self, requests: Iterable[Request], closed_loop: bool) -> None:
        """Begin to send ``requests``, whose roots are in order of arrival.

        Raises ``TraceError`` if a request follows itself.
        """
        roots: Iterable[tuple[int, Request]] = enumerate(requests)
        if closed_loop:
            roots, self._followers = _split_followers(list(roots))
        self._roots = iter(roots)
        self._post_root()

    def ended(self, seq: Sequence, refusal: Refusal | None) -> None:
        """Send or cancel the followers of a request that finished, or was refused."""
        if not self._followers:
            return
        parent = self.recorder.request(seq.number).request_id
        if refusal is None:
            self._follow(parent, self.recorder.last_token_s(seq.number))
        else:
            self._cancel(parent)

    def _post_root(self) -> None:
        """Post the next root only, so that a long trace is read as it is sent."""
        for rank, request in self._roots:
            sending = _Sending(request, request.arrival_s)
            self._sendings.post(to_ticks(request.arrival_s), rank, sending)
            return

    def _follow(self, parent: str, answered_s: float) -> None:
        for rank, request in self._followers.pop(parent, ()):
            sent_s = answered_s + (request.delay_s or 0.0)
            tick = self._sendings.soon(to_ticks(sent_s))
            self._sendings.post(tick, rank, _Sending(request, sent_s, is_root=False))

    def _cancel(self, parent: str) -> None:
        tick = self._sendings.soon(0)
        for rank, request in self._followers.pop(parent, ()):
            sending = _Sending(request, tick * SECONDS_PER_TICK, is_root=False, cancelled=True)
            self._sendings.post(tick, rank, sending)

    def _send(self, sending: _Sending) -> None:
        request = sending.request
        row = self.recorder.scheduled(request, sending.sent_s)
        if sending.is_root:
            self._post_root()
        if sending.cancelled:
            self.recorder.errors[row] = f"cancelled: no answer to its parent {request.parent_id!r}"
            self._cancel(request.request_id)
        elif (api := self.recorder.api) is None:
            self._arrive((request, row))
        else:
            received_s = sending.sent_s + api.request_in_s(request.prompt_tokens)
            self._received_tick = max(self._received_tick, to_ticks(received_s))
            self._inbox.post(self._received_tick, row, (request, row))

    def _arrive(self, sent: tuple[Request, int]) -> None:
        request, row = sent
        self.receive(request, row)
        if self.on_arrival and row % 1000 == 999:
            self.on_arrival(row + 1)


def form_a_loop(requests: Iterable[Request]) -> bool:
    """Return whether some request waits for the answer to another of them."""
    parents = {parent for request in requests if (parent := _parent(request)) is not None}
    return bool(parents) and any(request.request_id in parents for request in requests)


def _split_followers(
    numbered: list[tuple[int, Request]],
) -> tuple[list[tuple[int, Request]], dict[str, list[tuple[int, Request]]]]:
    """Return the roots, and the followers by parent."""
    parents = {request.request_id: _parent(request) for _, request in numbered}
    broken = broken_links(parents) if any(parents.values()) else {}
    if cyclic := next((name for name, reason in broken.items() if reason == "cyclic"), None):
        line = " -> ".join(chain([cyclic], _ancestors(cyclic, parents)))
        raise TraceError(f"request {cyclic!r} waits for itself ({line}): give one no parent_id")
    roots = []
    followers: dict[str, list[tuple[int, Request]]] = {}
    for number, request in numbered:
        parent = _parent(request)
        if parent is None or parent not in parents:
            roots.append((number, request))
        else:
            followers.setdefault(parent, []).append((number, request))
    return roots, followers


def _parent(request: Request) -> str | None:
    """Return the id of the request that a follower waits for."""
    return request.parent_id if request.delay_s is not None else None


def _ancestors(name: str, parents: dict[str, str | None]) -> Iterator[str]:
    """Yield the requests of a cycle from the parent of ``name`` on, back to ``name``."""
    parent = parents[name]
    while parent is not None and parent != name:
        yield parent
        parent = parents[parent]
    yield name
