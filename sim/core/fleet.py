"""A fleet in which replicas come and go: what fails, what is noticed, what is started and drained.

A gateway stands before the replicas. It sends requests to a replica that has crashed until health
checks notice; then it sends those that were lost, and have no token yet, to others. Requests wait
at the gateway while no replica serves. All this happens at ticks of its own, before any server
decides, and the replicas run as events: nothing of it is there where a cluster has no fleet.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf

from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import Refusal, Scheduler
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.autoscaling import Autoscaler, Autoscaling, FleetLoad
from servetwin.sim.core.environment import NEVER
from servetwin.sim.core.faults import Crash, Fault, Slow
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
    """What fails when, and how replicas are added and taken away.

    With a rule, ``replicas`` serve from the start; without one, all do. Health checks notice a
    crash after ``detection_s``; a request is sent again up to ``retries`` times. A client leaves
    ``timeout_s`` after it sent a request, if it has no whole answer by then.
    """

    replicas: int
    faults: tuple[Fault, ...] = ()
    rule: Autoscaling | None = None
    detection_s: float = 30.0
    retries: int = 1
    timeout_s: float = inf

    @property
    def most(self) -> int:
        """The most replicas of a pool."""
        return self.replicas if self.rule is None else self.rule.max


@dataclass(eq=False)
class Fleet:
    """Replicas behind a gateway; ``build`` makes the scheduler of one that is new or restarts.

    A place is that of a replica that serves, starts, drains or is down; whoever comes later may
    have it again.
    """

    plan: FleetPlan
    entrance: RoutedReplicas
    build: Callable[[int], Scheduler]
    policies: PolicyConfig
    has_more: Callable[[], bool] = bool
    """Whether more requests come."""
    counts: Counter[str] = field(default_factory=Counter)
    """What happened, by name."""

    def __post_init__(self) -> None:
        self.env, self.recorder = self.entrance.env, self.entrance.recorder
        self._replicas = self.entrance.all
        self._events = TickQueue(self.env)
        self._ranks = count()
        self._listeners: list[Listener] = []
        serving = self.plan.replicas if self.plan.rule else len(self._replicas)
        # Each place that is paid for, and since which tick.
        self._since = dict.fromkeys(range(serving), 0)
        self._paid = [0] * len(self._replicas)
        self._serving = list(self._since)
        self._starting: list[int] = []
        self._draining: set[int] = set()
        # Those that come back after a crash.
        self._down: set[int] = set()
        # Those whose crash nobody has noticed.
        self._lost: set[int] = set()
        # By row of each request that is open, it and the place that has it; none while it is held.
        self._requests: dict[int, Request] = {}
        self._under_way: dict[int, dict[int, Sequence]] = {}
        self._held: list[int] = []
        self._tries: Counter[int] = Counter()
        self._open_tokens = self._ended_tick = 0
        self._ttft_s: list[float] = []
        # [seconds, replicas that serve] at each change.
        self.sizes: list[list[float]] = [[0.0, len(self._serving)]]
        self._begin()

    def _begin(self) -> None:
        for place, replica in enumerate(self._replicas):
            replica.listeners.append(partial(self._ended, place))
        for fault in self.plan.faults:
            if isinstance(fault, Crash):
                self._at(to_ticks(fault.at_s), partial(self._crash, fault))
            elif isinstance(fault, Slow):
                self._at(to_ticks(fault.at_s), partial(self._slow, fault.replica, fault.factor))
                if fault.end_s < inf:
                    self._at(to_ticks(fault.end_s), partial(self._slow, fault.replica, 1.0))
        if (rule := self.plan.rule) is not None:
            self.entrance.regroup(self._serving)
            control = partial(self._control, rule, Autoscaler(rule))
            self._at(to_ticks(rule.interval_s), control)

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` for every request that ends."""
        self._listeners.append(listener)

    def receive(self, request: Request, row: int) -> None:
        """Send a request to the replica that the router chooses, once one serves."""
        self._requests[row], self._under_way[row] = request, {}
        self._open_tokens += request.total_tokens
        if self.plan.timeout_s < inf:
            self._at(to_ticks(self._latest_s(row)), partial(self._time_out, row))
        self._send(row)

    def _latest_s(self, row: int) -> float:
        return self.recorder.sent_s(row) + self.plan.timeout_s

    def _send(self, row: int) -> None:
        if self._serving:
            self.entrance.receive(self._requests[row], row, self._enter)
        else:
            self._held.append(row)

    def _enter(self, seq: Sequence, place: int) -> None:
        self.recorder.arrived(seq, place)
        self._under_way[seq.number][place] = seq

    def _at(self, tick: int, action: Delivery) -> None:
        self._events.post(tick, next(self._ranks), partial(self._happen, action))

    def _happen(self, action: Delivery) -> None:
        """Let something happen, unless all requests have ended and none comes."""
        if self._under_way or self.has_more():
            action()

    def _ended(self, place: int, seq: Sequence, refusal: Refusal | None) -> None:
        row, recorder = seq.number, self.recorder
        is_late = refusal is None and recorder.last_token_s(row) > self._latest_s(row)
        if row in self._under_way and not is_late:  # else its client has left, or will have
            self._close(seq, refusal)
        if place in self._draining:
            self._free_if_idle(place)

    def _time_out(self, row: int) -> None:
        """Let a client leave that has no whole answer."""
        if row in self._under_way:
            for place, seq in self._under_way[row].items():
                self._replicas[place].abort(seq, self.env.tick)
            if row in self._held:
                self._held.remove(row)
            self.counts["timed_out"] += 1
            error = f"timeout: no complete answer within {self.plan.timeout_s:.4g} s"
            self._fail(row, error, self._latest_s(row))

    def _fail(self, row: int, error: str, left_s: float = inf) -> None:
        self.recorder.failed(row, error, left_s)
        seq = as_sequence(self._requests[row], 0.0, None, row)
        self._close(seq, Refusal("queue_full", error))  # its client may try later

    def _close(self, seq: Sequence, refusal: Refusal | None) -> None:
        if self.plan.rule is not None:
            self._ttft_s.append(inf if refusal else self.recorder.ttft_s(seq.number))
        del self._under_way[seq.number], self._requests[seq.number]
        self._open_tokens -= seq.prompt_tokens + seq.max_tokens
        self._ended_tick = self.env.tick
        for listener in self._listeners:
            listener(seq, refusal)

    def _crash(self, fault: Crash) -> None:
        """Lose what a replica holds; one that does not run cannot crash."""
        place, now = fault.replica, self.env.tick
        if place not in self._since or place in self._starting:
            return
        self.counts["crashes"] += 1
        self._lost.add(place)
        self._replicas[place].crash(now, self.build(place))
        back = NEVER if fault.for_s is None else to_ticks(fault.end_s)
        noticed = min(now + to_ticks(self.plan.detection_s), back)
        self._at(noticed, partial(self._notice, place, back < NEVER))
        if back < NEVER:
            self._down.add(place)
            self._at(back, partial(self._restart, place))

    def _notice(self, place: int, comes_back: bool) -> None:
        """Take a crashed replica out, and send what it had to others."""
        self._lost.remove(place)
        self._replicas[place].renew(self.build(place))
        drained = place in self._draining
        if place in self._serving:
            self._leave(place)
            self.entrance.regroup(self._serving)
        if drained or not comes_back:
            self._free(place)
        for row in [row for row, places in self._under_way.items() if place in places]:
            self._send_again(place, row)

    def _send_again(self, place: int, row: int) -> None:
        """Send a lost request to another replica; one whose client has tokens has failed."""
        del self._under_way[row][place]
        self.counts["lost"] += 1
        has_tokens = self.recorder.lost(row)
        if has_tokens or self._tries[row] >= self.plan.retries:
            self._fail(row, f"failed: replica {place} crashed")
            return
        self._tries[row] += 1
        self.counts["retried"] += 1
        self._send(row)

    def _restart(self, place: int) -> None:
        if place in self._down:
            self._down.remove(place)
            self._replicas[place].restart()
            self._join([place])

    def _slow(self, place: int, factor: float) -> None:
        self._replicas[place].slow_down(self.env.tick, factor)

    def _control(self, rule: Autoscaling, scaler: Autoscaler) -> None:
        """Start or drain replicas as the rule says, and look again later."""
        change = scaler.change(self._load())
        self._ttft_s = []
        if change > 0:
            self._start(change, to_ticks(rule.start_up_s))
        in_hand = {place: self._in_hand(place) for place in self._serving if change < 0}
        for _ in range(-change):
            self._stop_one(in_hand)
        self.entrance.regroup(self._serving)
        self._at(self.env.tick + to_ticks(rule.interval_s), partial(self._control, rule, scaler))

    def _load(self) -> FleetLoad:
        waiting = sum(self._replicas[place].scheduler.load()[1] for place in self._serving)
        return FleetLoad(
            self.env.tick * SECONDS_PER_TICK, len(self._since) - len(self._draining),
            waiting + len(self._held), len(self._under_way) / self.policies.max_seqs,
            self._open_tokens / self.policies.kv_tokens, self._ttft_s,
        )  # fmt: skip

    def _start(self, number: int, start_up: int) -> None:
        """Begin to start replicas, as far as places are free."""
        now = self.env.tick
        places = [p for p in range(len(self._replicas)) if p not in self._since][:number]
        for place in places:
            self._since[place] = now
            self._replicas[place].renew(self.build(place))
            self._replicas[place].restart()
        self._starting += places
        self.counts["started"] += len(places)
        self._at(now + start_up, partial(self._ready, places, now))

    def _ready(self, places: list[int], since: int) -> None:
        ready = [p for p in places if self._since.get(p) == since]  # others were stopped
        for place in ready:
            self._starting.remove(place)
        self._join(ready)

    def _stop_one(self, in_hand: Mapping[int, int]) -> None:
        """Stop the latest replica that starts, else drain the least loaded one that serves."""
        if self._starting:
            self._free(self._starting.pop())
        elif self._serving:
            place = min(self._serving, key=in_hand.__getitem__)
            self.counts["drained"] += 1
            self._draining.add(place)
            self._leave(place)
            self._free_if_idle(place)

    def _in_hand(self, place: int) -> int:
        running, waiting, _ = self._replicas[place].scheduler.load()
        return running + waiting

    def _free_if_idle(self, place: int) -> None:
        if place not in self._lost and not self._in_hand(place):
            self._free(place)

    def _join(self, places: list[int]) -> None:
        """Let replicas serve; the first gets all that waits at the gateway."""
        for place in places:
            self._serving.append(place)
            self._note_size()
            held, self._held = self._held, []
            if held:
                self.entrance.regroup(self._serving)
            for row in held:
                self._send(row)
        self.entrance.regroup(self._serving)

    def _leave(self, place: int) -> None:
        """Let the last replica have the place: consistent hashing moves two shares only."""
        last = self._serving.pop()
        if last != place:
            self._serving[self._serving.index(place)] = last
        self._note_size()

    def _note_size(self) -> None:
        self.sizes.append([self.env.tick * SECONDS_PER_TICK, len(self._serving)])

    def _free(self, place: int) -> None:
        """Stop paying for a replica."""
        self._draining.discard(place)
        self._down.discard(place)
        self._paid[place] += self.env.tick - self._since.pop(place)

    def figures(self) -> dict[str, object]:
        """Return what happened: counts, hours that are paid for, and the sizes over time."""
        end = self._ended_tick
        open_ends = {place: max(0, end - since) for place, since in self._since.items()}
        ticks = [paid + open_ends.get(place, 0) for place, paid in enumerate(self._paid)]
        hours = [paid * SECONDS_PER_TICK / 3600 for paid in ticks]
        names = ("crashes", "lost", "retried", "timed_out", "started", "drained")
        return {
            **{name: self.counts[name] for name in names},
            "replica_hours": sum(hours),
            "hours_by_replica": hours,
            "sizes": self.sizes,
        }
