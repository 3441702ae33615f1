"""The gateway of a fleet: where each request is, and whether its client still waits.

A request goes to the replica that the router chooses; it is held while none serves. It is sent
again where its replica is lost, and hedged where its first token does not come: each copy has a
record of its own, and that of the copy whose answer the client has is the request's.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf

from servetwin.policies.protocols import Refusal
from servetwin.policies.queues.quotas import TokenBuckets
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.autoscaling import Autoscaling
from servetwin.sim.core.faults import Fault
from servetwin.sim.core.pools import RoutedReplicas
from servetwin.sim.core.replica import Listener
from servetwin.sim.core.simulate import as_sequence
from servetwin.sim.core.tick_queue import Delivery, TickQueue
from servetwin.sim.step_times.step_time import SECONDS_PER_TICK, to_ticks
from servetwin.workloads.native_class import mypyc_attr
from servetwin.workloads.request import Request


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What fails when, how replicas are added and taken away, and what requests go through.

    With a rule, ``replicas`` serve from the start; without one, all do. Health checks notice a
    crash after ``detection_s``; a request is sent again up to ``retries`` times. A client leaves
    ``timeout_s`` after it sent a request, if it has no whole answer by then. ``quotas`` has the
    tokens per second and the burst of tenants by name (``policies.queues.quotas``). A request
    without a token after ``hedge_s`` goes to another replica too, and the first token wins.
    """

    replicas: int
    faults: tuple[Fault, ...] = ()
    rule: Autoscaling | None = None
    detection_s: float = 30.0
    retries: int = 1
    timeout_s: float = inf
    hedge_s: float = inf
    quotas: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def most(self) -> int:
        """The most replicas of a pool."""
        return self.replicas if self.rule is None else self.rule.max


@dataclass(eq=False)
class Gateway:
    """Sends requests to the replicas of the numbers ``serving``, which a fleet changes."""

    plan: FleetPlan
    entrance: RoutedReplicas
    serving: list[int]
    has_more: Callable[[], bool] = bool
    """Whether more requests come."""

    def __post_init__(self) -> None:
        self.env, self.recorder = self.entrance.env, self.entrance.recorder
        self.recorder.on_token = self._has_token
        # What happened, by name.
        self.counts = Counter[str]()
        # Of the requests that ended since a rule looked; infinite without a token.
        self.ttft_s: list[float] = []
        self.open_tokens = self.ended_tick = 0
        # By row of each request that is open, it and its copies by place; none while none serves.
        self._requests: dict[int, Request] = {}
        self.copies: dict[int, dict[int, Sequence]] = {}
        # Since when nothing comes from the places that are cut off.
        self.cut_s: dict[int, float] = {}
        # By the number of a copy that is not the first, the row of its request.
        self._rows: dict[int, int] = {}
        # By the number of a copy that was refused while there was another.
        self._refusals: dict[int, Refusal] = {}
        self._tries: Counter[int] = Counter()
        self._buckets = TokenBuckets(self.plan.quotas)
        self._events, self._ranks = TickQueue(self.env), count()
        self._listeners: list[Listener] = []

    def at(self, tick: int, action: Delivery) -> None:
        """Do something at a tick, unless all requests have ended by then and none comes."""
        self._events.post(tick, next(self._ranks), partial(self._happen, action))

    def _happen(self, action: Delivery) -> None:
        if self.copies or self.has_more():
            action()

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` for every request that ends."""
        self._listeners.append(listener)

    def receive(self, request: Request, row: int) -> None:
        """Take in a request within its quota."""
        self._requests[row], self.copies[row] = request, {}
        self.open_tokens += request.total_tokens
        if refusal := self._buckets.refusal(request, self.env.tick * SECONDS_PER_TICK):
            self._refuse(row, refusal)
            return
        if self.plan.timeout_s < inf:
            self.at(to_ticks(self._latest_s(row)), partial(self._time_out, row))
        self._send(row)

    def _latest_s(self, row: int) -> float:
        return self.recorder.sent_s(row) + self.plan.timeout_s

    def held(self) -> list[int]:
        """Return the rows of the requests that came while no replica served."""
        return [row for row, copies in self.copies.items() if not copies]

    def send_held(self) -> None:
        """Send them."""
        if held := self.held():
            self.entrance.regroup(self.serving)
        for row in held:
            self._send(row)

    def _send(self, row: int, avoided: int = -1) -> None:
        """Send a request, or with ``avoided`` a copy of it, to another replica than that."""
        if not self.serving:
            return
        number = row
        if self._tries[row] or avoided >= 0:
            number = self.recorder.copy(row)
            self._rows[number] = row
        self.entrance.receive(self._requests[row], number, self._enter, avoided)
        if self.plan.hedge_s < inf and avoided < 0:
            self.at(self.env.tick + to_ticks(self.plan.hedge_s), partial(self._hedge, row))

    def _enter(self, seq: Sequence, place: int) -> None:
        self.recorder.arrived(seq, place)
        row = self._row(seq)
        self.copies[row][place] = seq
        self._keep_record(row)

    def _row(self, seq: Sequence) -> int:
        return self._rows.get(seq.number, seq.number)

    def _keep_record(self, row: int) -> None:
        """Let the record of the only copy be that of the request; of two, await a token."""
        numbers = [seq.number for seq in self.copies[row].values()]
        if len(numbers) > 1:
            self.recorder.awaited.update(numbers)
        elif numbers[0] != row:
            self.recorder.copies[row] = numbers[0]

    def _hedge(self, row: int) -> None:
        """Send a request without a token to another replica too."""
        copies = self.copies.get(row, {})
        if len(copies) != 1 or len(self.serving) < 2:
            return
        ((place, seq),) = copies.items()
        if self._first_s(place, seq) == inf:
            self.counts["hedged"] += 1
            self._send(row, place)

    def _has_token(self, number: int) -> None:
        """Decide at the next tick, when all first tokens of this one are known."""
        row = self._rows.get(number, number)
        self.at(self._events.soon(0), partial(self._decide, row))

    def _decide(self, row: int) -> None:
        """Let the copy with the first token win; the other is aborted."""
        copies = self.copies.get(row, {})
        first_s = sorted((self._first_s(place, seq), place) for place, seq in copies.items())
        if len(copies) > 1 and first_s[0][0] == inf:
            return
        for _, place in first_s[1:]:
            self._abort(place, copies.pop(place))
            self._keep_record(row)
        for seq in list(copies.values()):  # which may have all tokens
            if self.recorder.last_token_s(seq.number) <= self._latest_s(row):
                self._close(row, seq, None)

    def _first_s(self, place: int, seq: Sequence) -> float:
        """Return when the first token of a copy came, infinite where it has not."""
        at_s = self.recorder.first_token_s(seq.number)
        return at_s if at_s <= self.cut_s.get(place, inf) else inf  # NaN without one

    def ended(self, place: int, seq: Sequence, refusal: Refusal | None) -> None:
        """Close the request of a copy that has ended, if its client waits for it."""
        row = self._row(seq)
        copies = self.copies.get(row, {})
        if copies.get(place) is not seq:
            return
        if len(copies) > 1:
            if refusal is not None:
                self._refusals[seq.number] = refusal
                self.at(self._events.soon(0), partial(self._drop, row))
        elif refusal or self.recorder.last_token_s(seq.number) <= self._latest_s(row):
            self._close(row, seq, refusal)

    def _drop(self, row: int) -> None:
        """Go on with the copy that was not refused at this tick, if there is one."""
        copies = self.copies.get(row, {})
        refused = sorted(p for p, seq in copies.items() if seq.number in self._refusals)
        for place in refused[: len(copies) - 1]:
            del copies[place]
        if refused:
            self._keep_record(row)
        if refused and refused[-1] in copies:
            seq = copies[refused[-1]]
            self._close(row, seq, self._refusals[seq.number])

    def _time_out(self, row: int) -> None:
        """Let a client leave that has no whole answer."""
        if row in self.copies:
            for place, seq in self.copies[row].items():
                self._abort(place, seq)
            self.counts["timed_out"] += 1
            error = f"timeout: no complete answer within {self.plan.timeout_s:.4g} s"
            self._fail(row, error, self._latest_s(row))

    def _abort(self, place: int, seq: Sequence) -> None:
        if place not in self.cut_s:
            self.entrance.all[place].abort(seq, self.env.tick)

    def lose(self, place: int, reason: str) -> None:
        """Give up a replica, and send what it had to others where no client has a token of it."""
        for row in [row for row, copies in self.copies.items() if place in copies]:
            copies = self.copies[row]
            has_token = self._first_s(place, copies.pop(place)) < inf
            if copies:
                self._keep_record(row)
                continue
            self.counts["lost"] += 1
            if has_token or self._tries[row] >= self.plan.retries:
                error = f"failed: replica {place} {reason}"
                self._fail(row, error, self.cut_s.get(place, inf))
            else:
                self._tries[row] += 1
                self.counts["retried"] += 1
                self._send(row)

    def _fail(self, row: int, error: str, left_s: float = inf) -> None:
        self._refuse(row, Refusal("queue_full", error))  # its client may try later
        self.recorder.failed(row, error, left_s)

    def _refuse(self, row: int, refusal: Refusal) -> None:
        seq = as_sequence(self._requests[row], 0.0, None, row)
        self.recorder.refused(seq, refusal)
        self._close(row, seq, refusal)

    def _close(self, row: int, seq: Sequence, refusal: Refusal | None) -> None:
        if self.plan.rule is not None:
            first_s = inf if refusal else self.recorder.first_token_s(seq.number)
            self.ttft_s.append(first_s - self.recorder.sent_s(row))
        del self.copies[row], self._requests[row]
        self.open_tokens -= seq.prompt_tokens + seq.max_tokens
        self.ended_tick = self.env.tick
        for listener in self._listeners:
            listener(seq, refusal)
