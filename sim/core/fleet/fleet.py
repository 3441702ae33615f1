"""A fleet in which replicas come and go: what fails, what is noticed, what is started and drained.

A gateway stands before the replicas. It sends requests to a replica that has crashed until health
checks notice; then it sends those that were lost, and have no token yet, to others. Requests wait
at the gateway while no replica serves. All this happens at ticks of its own, before any server
decides, and the replicas run as events: nothing of it is there where a cluster has no fleet.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf

from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import Refusal, Scheduler
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.autoscaling import Autoscaler, Autoscaling, FleetLoad
from servetwin.sim.core.environment import NEVER
from servetwin.sim.core.faults import Crash, Fault, Slow
from servetwin.sim.core.fleet.gateway import FleetPlan, Gateway
from servetwin.sim.core.pools import RoutedReplicas
from servetwin.sim.step_times.step_time import SECONDS_PER_TICK, to_ticks

# What happens in a fleet, in the order of a report.
COUNTS = ("crashes", "partitions", "lost", "retried", "hedged", "timed_out", "started", "drained")


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

    def __post_init__(self) -> None:
        self.env, self._replicas = self.entrance.env, self.entrance.all
        serving = self.plan.replicas if self.plan.rule else len(self._replicas)
        self._serving = list(range(serving))
        self.gateway = Gateway(self.plan, self.entrance, self._serving)
        self._counts, self._at = self.gateway.counts, self.gateway.at
        # Each place that is paid for, and since which tick.
        self._since = dict.fromkeys(range(serving), 0)
        self._paid = [0] * len(self._replicas)
        self._starting: list[int] = []
        self._draining: set[int] = set()
        # Those that come back after a crash.
        self._down: set[int] = set()
        # Those whose crash nobody has noticed.
        self._lost: set[int] = set()
        # [seconds, replicas that serve] at each change.
        self.sizes: list[list[float]] = [[0.0, serving]]
        self._begin()

    def _begin(self) -> None:
        for place, replica in enumerate(self._replicas):
            replica.listeners.append(partial(self._ended, place))
        for fault in self.plan.faults:
            at = to_ticks(fault.at_s)
            if isinstance(fault, Slow):
                self._at(at, partial(self._slow, fault.replica, fault.factor))
                if fault.end_s < inf:
                    self._at(to_ticks(fault.end_s), partial(self._slow, fault.replica, 1.0))
            else:
                self._at(at, partial(self._go_dark, fault))
        if (rule := self.plan.rule) is not None:
            self.entrance.regroup(self._serving)
            self._at(to_ticks(rule.interval_s), partial(self._control, rule, Autoscaler(rule)))

    def _ended(self, place: int, seq: Sequence, refusal: Refusal | None) -> None:
        self.gateway.ended(place, seq, refusal)
        if place in self._draining:  # a scheduler that decides ahead forgets it a moment later
            self._at(self.env.tick + 1, partial(self._free_if_idle, place))

    def _go_dark(self, fault: Fault) -> None:
        """Let a replica crash, or cut it off; nothing happens to one that does not run."""
        place, now = fault.replica, self.env.tick
        if place not in self._since or place in self._starting or place in self._down:
            return
        self._lost.add(place)
        if isinstance(fault, Crash):
            self._counts["crashes"] += 1
            self._replicas[place].crash(now, self.build(place))
        else:
            self._counts["partitions"] += 1
            self._replicas[place].cut_off()
            self.gateway.cut_s[place] = now * SECONDS_PER_TICK
        back = NEVER if fault.for_s is None else to_ticks(fault.end_s)
        noticed = min(now + to_ticks(self.plan.detection_s), back)
        self._at(noticed, partial(self._notice, place, back < NEVER))
        if back < NEVER:
            self._down.add(place)
            self._at(back, partial(self._come_back, place))

    def _notice(self, place: int, comes_back: bool) -> None:
        """Take a replica out that does not answer, and send what it had to others."""
        self._lost.remove(place)
        reason = "was cut off" if place in self.gateway.cut_s else "crashed"
        drained = place in self._draining
        if place in self._serving:
            self._leave(place)
            self.entrance.regroup(self._serving)
        self.gateway.lose(place, reason)
        if drained or not comes_back:
            self._free(place)

    def _come_back(self, place: int) -> None:
        if place in self._down:
            self._at(self._revive(place), partial(self._rejoin, place))

    def _rejoin(self, place: int) -> None:
        if place in self._down:
            self._down.remove(place)
            self._join([place])

    def _revive(self, place: int) -> int:
        """Begin anew with a replica that was lost; return when it is free of what it had."""
        now, replica = self.env.tick, self._replicas[place]
        if self.gateway.cut_s.pop(place, None) is not None:
            return replica.reconnect(now) + 1
        replica.renew(self.build(place))
        replica.restart()
        return now

    def _slow(self, place: int, factor: float) -> None:
        self._replicas[place].slow_down(self.env.tick, factor)

    def _control(self, rule: Autoscaling, scaler: Autoscaler) -> None:
        """Start or drain replicas as the rule says, and look again later."""
        for place in [*self._draining]:  # a draft may have run on behind the last answer
            self._free_if_idle(place)
        change = scaler.change(self._load())
        self.gateway.ttft_s = []
        if change > 0:
            self._start(change, to_ticks(rule.start_up_s))
        in_hand = {place: self._in_hand(place) for place in self._serving if change < 0}
        for _ in range(-change):
            self._stop_one(in_hand)
        self.entrance.regroup(self._serving)
        self._at(self.env.tick + to_ticks(rule.interval_s), partial(self._control, rule, scaler))

    def _load(self) -> FleetLoad:
        gateway = self.gateway
        waiting = sum(self._replicas[place].scheduler.load()[1] for place in self._serving)
        return FleetLoad(
            self.env.tick * SECONDS_PER_TICK, len(self._since) - len(self._draining),
            waiting + len(gateway.held()), len(gateway.copies) / self.policies.max_seqs,
            gateway.open_tokens / self.policies.kv_tokens, gateway.ttft_s,
        )  # fmt: skip

    def _start(self, number: int, start_up: int) -> None:
        """Begin to start replicas, as far as places are free."""
        now = self.env.tick
        places = [p for p in range(len(self._replicas)) if p not in self._since][:number]
        for place in places:
            self._since[place] = now
            self._revive(place)
        self._starting += places
        self._counts["started"] += len(places)
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
            self._counts["drained"] += 1
            self._draining.add(place)
            self._leave(place)
            self._free_if_idle(place)

    def _in_hand(self, place: int) -> int:
        running, waiting, _ = self._replicas[place].scheduler.load()
        return running + waiting

    def _free_if_idle(self, place: int) -> None:
        drained = place in self._draining and place not in self._lost
        if drained and not self._in_hand(place):
            self._free(place)

    def _join(self, places: list[int]) -> None:
        """Let replicas serve; the first gets all that waits at the gateway."""
        for place in places:
            self._serving.append(place)
            self._note_size()
            self.gateway.send_held()
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
        if place in self.gateway.cut_s:
            self._revive(place)
            self._replicas[place].crash(self.env.tick, self.build(place))
        self._paid[place] += self.env.tick - self._since.pop(place)

    def figures(self) -> dict[str, object]:
        """Return what happened: counts, hours that are paid for, and the sizes over time."""
        end = self.gateway.ended_tick
        open_ends = {place: max(0, end - since) for place, since in self._since.items()}
        ticks = [paid + open_ends.get(place, 0) for place, paid in enumerate(self._paid)]
        hours = [paid * SECONDS_PER_TICK / 3600 for paid in ticks]
        return {
            **{name: self._counts[name] for name in COUNTS},
            "replica_hours": sum(hours),
            "hours_by_replica": hours,
            "sizes": self.sizes,
        }
