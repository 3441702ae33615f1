"""What is sent when: the one definition for the simulator and the load tester."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from servetwin.workloads.graphs.links import refuse_cycles, tasks
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace, column

Item = TypeVar("Item")


def waits(requests: Iterable[Request], closed_loop: bool = True) -> dict[str, tuple[str, ...]]:
    """Return the requests that each one waits for, by its id: parents that are in the trace.

    A request without ``delay_s`` waits for none, nor does any in an open loop. Raises
    ``TraceError`` where a request waits for itself.
    """
    requests = list(requests)
    links: dict[str, tuple[str, ...]] = {request.request_id: () for request in requests}
    for request in requests if closed_loop else ():
        if (parents := request.parent_ids) and request.delay_s is not None:
            if len(parents) > 1 or parents[0] not in links:
                parents = tuple(dict.fromkeys(name for name in parents if name in links))
            links[request.request_id] = parents
    refuse_cycles(links)
    return links


def earliest_arrivals_s(requests: Iterable[Request]) -> dict[str, float]:
    """Return when each request is sent where every answer takes no time, by its id."""
    graph = TaskGraph(requests, lambda request: request)
    sent = [(request, request.arrival_s) for request in graph.roots]
    for request, at_s in sent:  # grows by the requests that wait no more
        sent += graph.ended(request.request_id, at_s, answered=True)
    return {request.request_id: at_s for request, at_s in sent}


def form_a_loop(requests: Iterable[Request]) -> bool:
    """Return whether some request waits for the answer to another of them, or lanes send them."""
    if isinstance(requests, Trace) and requests.lanes:
        return True
    listed = requests.requests if isinstance(requests, Trace) else list(requests)
    links = zip(column(listed, "delay_s"), column(listed, "parent_ids"), strict=True)
    waited = {p for delay_s, parents in links if delay_s is not None for p in parents}
    return bool(waited) and any(name in waited for name in column(listed, "request_id"))


@dataclass(slots=True, eq=False)
class _Follower:
    item: Any
    parents: tuple[str, ...]
    open: int
    ended_s: float = 0.0
    answered: bool = False


class TaskGraph(Generic[Item]):
    """Requests of which some wait for others.

    The ``roots`` are sent at their arrival. A follower is sent ``delay_s`` after the last of its
    parents has ended, whether with an answer or without; where none of them was answered, it is not
    sent at all. With ``fail_fast``, a request without an answer ends its task: nothing more of it
    is sent.

    An item is a request, or something that has one (``request_of``).
    """

    def __init__(
        self,
        items: Iterable[Item],
        request_of: Callable[[Item], Request],
        *,
        closed_loop: bool = True,
        fail_fast: bool = False,
    ) -> None:
        items = list(items)
        links = waits(map(request_of, items), closed_loop)
        self.roots: list[Item] = []
        # The number of followers that have no time yet.
        self.waiting = 0
        self._request_of = request_of
        self._followers: dict[str, list[_Follower]] = {}
        self._links, self._fail_fast = links, fail_fast
        self._task_names: dict[str, str] = {}
        self._unanswered: dict[str, str] = {}
        self._ended_tasks: dict[str, str] = {}
        for item in items:
            parents = links[request_of(item).request_id]
            if not parents:
                self.roots.append(item)
                continue
            follower = _Follower(item, parents, len(parents))
            self.waiting += 1
            for parent in parents:
                self._followers.setdefault(parent, []).append(follower)

    def decides(self, request_id: str) -> bool:
        """Return whether it matters to others how a request ended."""
        return request_id in self._followers or self._fail_fast

    def ended(self, request_id: str, at_s: float, answered: bool) -> list[tuple[Item, float]]:
        """End a request; return the followers that wait no more, and when they are sent.

        ``why_not_sent`` tells which of them are not: their time is that of the end.
        """
        if self._fail_fast and not answered:
            reason = f"its task ended without an answer to {request_id!r}"
            self._ended_tasks.setdefault(self.task_of(request_id), reason)
        ready = []
        for follower in self._followers.pop(request_id, ()):
            follower.open -= 1
            follower.ended_s = max(follower.ended_s, at_s)
            follower.answered |= answered
            if not follower.open:
                ready.append((follower.item, self._sent_s(follower)))
        self.waiting -= len(ready)
        return ready

    def _sent_s(self, follower: _Follower) -> float:
        request = self._request_of(follower.item)
        if not follower.answered:
            names = ", ".join(map(repr, follower.parents))
            several = "s" if len(follower.parents) > 1 else ""
            self._unanswered[request.request_id] = f"no answer to its parent{several} {names}"
        if self.why_not_sent(request.request_id):
            return follower.ended_s
        return follower.ended_s + (request.delay_s or 0.0)

    def task_of(self, request_id: str) -> str:
        """Return the name of a request's task."""
        if not self._task_names:
            self._task_names = tasks(self._links)
        return self._task_names[request_id]

    def why_not_sent(self, request_id: str) -> str | None:
        """Return why a request whose time has come is not sent; None where it is."""
        if self._unanswered and (reason := self._unanswered.get(request_id)):
            return reason
        return self._ended_tasks.get(self.task_of(request_id)) if self._ended_tasks else None
