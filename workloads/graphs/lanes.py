"""Lanes: N session trees alive at a time, replayed against a warm cache.

A tree is a task: a root and its sub-agents. A lane draws its next tree when all requests of the one
before have ended, those in the background included. The first tree of a lane begins in its midst,
at an instant t*: each session that goes on sends its last turn before t* as warm-up, with all that
it holds in the cache. Once all warm-up turns have ended the measured phase begins, at the t* of all
lanes. Later trees begin at turn 0.

Which trees a lane draws depends on the seed alone, so that simulator and load tester send the same.
The rules are those of AgentX (AIPerf, ``docs/benchmark-modes/semianalysis-agentx-faq.md``).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any, Generic, TypeVar

import numpy as np

from servetwin.workloads.errors import TraceError
from servetwin.workloads.graphs.links import links_of, tasks
from servetwin.workloads.graphs.repeats import Repeats
from servetwin.workloads.graphs.task_graph import TaskGraph
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

Item = TypeVar("Item")
Tree = Sequence[Request]
# Requests of the trace, and when they are sent.
Due = list[tuple[Request, float]]
# Random streams, apart from those that the workload generators take from the same seed.
_CUTS, _ORDERS = 7, 8


@dataclass(slots=True, eq=False)
class Replay:
    """A tree on a lane; ``mark`` is in the names of its requests, ``left`` have not ended.

    ``is_whole`` where it begins at turn 0. ``cut`` requests are not sent: their session has ended
    (``overflowed``), or the measured phase.
    """

    lane: int
    number: int
    mark: int
    root: Request
    graph: TaskGraph[Request]
    left: int
    is_whole: bool
    cut: int = 0
    overflowed: set[str] = field(default_factory=set)


class LaneSource(Generic[Item]):
    """What lanes send and when, answered as by ``TaskGraph``; it makes the requests itself.

    A request whose delay after its parents is not known follows them as it arrived. One without an
    answer releases what waits for it, unless ``fail_fast`` ends its tree. One longer than the
    model's context (``context_tokens``) ends its session, once the server has refused it.
    ``item_of`` makes an item of a request whose time is known: its arrival.
    """

    def __init__(
        self,
        trace: Trace,
        item_of: Callable[[Request], Item],
        *,
        context_tokens: int | None = None,
        fail_fast: bool = False,
    ) -> None:
        if trace.lanes is None or not trace.requests:
            raise TraceError(f"{trace.source}: there is no session that a lane could replay")
        self.rules = trace.lanes
        self.replays: list[Replay] = []
        # By request, its replay and what it is in the trace.
        self.sent: dict[str, tuple[Replay, Request]] = {}
        self.warm_up: set[str] = set()
        self.measured_from_s = inf
        self.ended_early: str | None = None
        # Always 0: how many requests are left depends on the server.
        self.waiting = 0
        self._item_of, self._fail_fast = item_of, fail_fast
        self._longest = inf if context_tokens is None else context_tokens
        self._trees, self._repeats = _trees(trace, self.rules.idle_s), Repeats(trace)
        self._orders: dict[int, list[int]] = {}
        self._starts: list[tuple[Replay, Due]] = []
        self._warming: set[str] = set()
        self._warmed_s = 0.0
        roots = [item for lane in range(self.rules.lanes) for item in self._warm_ups(lane)]
        self.warm_up |= self._warming
        self.roots = [item for item, _ in roots or self._measure(0.0)]

    @property
    def end_s(self) -> float:
        """When nothing is sent any more; inf before the measured phase has begun."""
        return self.measured_from_s + self.rules.duration_s

    def decides(self, request_id: str) -> bool:
        """Return True: every end may let a lane go on."""
        return True

    def why_not_sent(self, request_id: str) -> str | None:
        """Return why a request whose time has come is not sent; None where it is."""
        replay, request = self.sent[request_id]
        return "its session outgrew the context" if _session(request) in replay.overflowed else None

    def ended(self, request_id: str, at_s: float, answered: bool) -> list[tuple[Item, float]]:
        """End a request; return what is sent because of it, and when."""
        replay, request = self.sent[request_id]
        overflows = not answered and request.total_tokens > self._longest
        if overflows:
            replay.overflowed.add(_session(request))
        if request_id in self._warming:
            self._warming.discard(request_id)
            self._warmed_s = max(self._warmed_s, at_s)
            if not (answered or overflows) and _session(request) == _session(replay.root):
                self.ended_early = f"the root session of {request_id!r} failed in warm-up"
            return [] if self._warming or self.ended_early else self._measure(self._warmed_s)
        replay.left -= 1
        answered = answered or not self._fail_fast
        return self._released(replay, replay.graph.ended(request.request_id, at_s, answered), at_s)

    def task_of(self, request_id: str) -> str | None:
        """Return the task of a request; None where not all of the tree was sent and has ended."""
        replay, _ = self.sent[request_id]
        is_whole = replay.is_whole and not replay.left
        return self._repeats.name(replay.root.request_id, replay.mark) if is_whole else None

    def figures(self) -> dict[str, Any]:
        """Return what became of the replays, and which rules of the scenario were broken."""
        sessions = {(replay.number, _session(request)) for replay, request in self.sent.values()}
        overflowed = sum(len(replay.overflowed) for replay in self.replays)
        return {
            **asdict(self.rules),
            "traces": len(self._trees),
            "measured_from_s": None if self.measured_from_s == inf else self.measured_from_s,
            "replays": len(self.replays),
            "drained": sum(not replay.left for replay in self.replays),
            "sessions": len(sessions),
            "overflowed": overflowed,
            "warm_up_turns": len(self.warm_up),
            "cold_lanes": sum(replay.is_whole for replay in self.replays[: self.rules.lanes]),
            "not_sent": sum(replay.cut for replay in self.replays),
            "ended_early": self.ended_early,
            "broken": self.rules.broken(len(sessions), overflowed, self.ended_early),
        }

    def _warm_ups(self, lane: int) -> list[tuple[Item, float]]:
        """Cut the first tree of a lane at its t*; return its warm-up turns, which are sent at 0."""
        tree, rules = self._tree(lane), self.rules
        begun_s, share = tree[0].arrival_s, self._rng(_CUTS, lane)
        cut_s = begun_s + share.uniform(rules.first_from, rules.first_to) * (
            tree[-1].arrival_s - begun_s
        )
        last = {_session(request): request for request in tree if request.arrival_s < cut_s}
        later = [request for request in tree if request.arrival_s >= cut_s]
        replay = self._replay(lane, lane, tree[0], later, is_whole=not last)
        start_s = 0.0 if rules.users else cut_s
        self._starts.append((replay, self._from(replay.graph.roots, start_s)))
        going_on = {_session(request) for request in later}
        items = [
            self._sent_at(replay, request, 0.0)
            for session, request in last.items()
            if session in going_on
        ]
        self._warming.update(self.sent)
        return items

    def _measure(self, at_s: float) -> list[tuple[Item, float]]:
        """Begin the measured phase: all lanes go on from their t*."""
        self.measured_from_s = at_s
        items = []
        for replay, starts in self._starts:
            due = [(request, at_s + later_s) for request, later_s in starts]
            items += self._released(replay, due, at_s)
        return sorted(items, key=lambda item: item[1])

    def _released(self, replay: Replay, due: Due, at_s: float) -> list[tuple[Item, float]]:
        """Return what is sent of the requests that wait no more; a drained lane goes on."""
        items = []
        for request, sent_s in due:  # grows by those that waited for requests that are not sent
            unsent = replay.graph.why_not_sent(request.request_id)
            if unsent or _session(request) in replay.overflowed:
                replay.left, replay.cut = replay.left - 1, replay.cut + 1
                due += replay.graph.ended(request.request_id, at_s, answered=False)
            elif sent_s >= self.end_s:
                replay.cut += 1
            else:
                items.append(self._sent_at(replay, request, sent_s))
        return items if replay.left or at_s >= self.end_s else items + self._next(replay, at_s)

    def _next(self, before: Replay, at_s: float) -> list[tuple[Item, float]]:
        """Draw the next tree of a lane, from its turn 0."""
        number = before.number + self.rules.lanes
        tree = self._tree(number)
        replay = self._replay(before.lane, number, tree[0], tree, is_whole=True)
        begun_s = at_s + (tree[0].delay_s or 0.0)
        starts = self._from(replay.graph.roots, tree[0].arrival_s)
        return self._released(replay, [(each, begun_s + later_s) for each, later_s in starts], at_s)

    def _tree(self, number: int) -> Tree:
        """Return the tree of a replay: in each round every tree once, in an order of its own."""
        turn, place = divmod(number, len(self._trees))
        if self.rules.users:
            return self._trees[place]
        if turn not in self._orders:
            self._orders[turn] = self._rng(_ORDERS, turn).permutation(len(self._trees)).tolist()
        return self._trees[self._orders[turn][place]]

    def _rng(self, stream: int, number: int) -> np.random.Generator:
        key = (stream, number)
        return np.random.default_rng(np.random.SeedSequence(self.rules.seed, spawn_key=key))

    def _replay(
        self, lane: int, number: int, root: Request, requests: Tree, *, is_whole: bool
    ) -> Replay:
        graph = TaskGraph(requests, lambda request: request, fail_fast=self._fail_fast)
        mark = number // self.rules.lanes if self.rules.users else number
        replay = Replay(lane, number, mark, root, graph, len(requests), is_whole)
        self.replays.append(replay)
        return replay

    def _from(self, roots: Iterable[Request], start_s: float) -> Due:
        """Return how long after ``start_s`` each root arrives; gaps are cut."""
        return [(each, min(self.rules.idle_s, each.arrival_s - start_s)) for each in roots]

    def _sent_at(self, replay: Replay, request: Request, at_s: float) -> tuple[Item, float]:
        sent = replace(self._repeats.again(request, replay.mark), arrival_s=at_s)
        self.sent[sent.request_id] = replay, request
        return self._item_of(sent), at_s


def _session(request: Request) -> str:
    """Return the session within a tree; a tree without names is one."""
    return request.session_id or ""


def _trees(trace: Trace, idle_s: float) -> list[Tree]:
    """Return the trees of a trace in the order of their roots, with their gaps cut."""
    leaders, requests = tasks(links_of(trace)), {each.request_id: each for each in trace}
    trees: dict[str, list[Request]] = {}
    for request in trace:
        parents = [requests[name] for name in request.parent_ids if name in requests]
        delay_s = request.delay_s
        if delay_s is None and parents:
            delay_s = request.arrival_s - max(parent.arrival_s for parent in parents)
        if delay_s is not None:
            request = replace(request, delay_s=min(delay_s, idle_s))
        trees.setdefault(leaders[request.request_id], []).append(request)
    return list(trees.values())
