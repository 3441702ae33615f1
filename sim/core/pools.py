"""Groups of replicas: equal servers in a pool, and one or more pools behind a router."""

from collections.abc import Callable
from collections.abc import Sequence as Listed
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from typing import Literal

from servetwin.policies.config import PolicyConfig, require
from servetwin.policies.lockstep import PLACES, pair
from servetwin.policies.protocols import Load, Refusal
from servetwin.policies.routers.replica_loads import ReplicaLoads
from servetwin.policies.routers.router import Router
from servetwin.policies.routers.routing import is_blind
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.environment import NEVER
from servetwin.sim.core.replica import Listener, Replica
from servetwin.sim.core.simulate import as_sequence, keys_of
from servetwin.sim.step_times.acceptance import Acceptance
from servetwin.sim.step_times.step_time import SECONDS_PER_TICK, NoiseSample, StepTime
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.native_class import mypyc_attr
from servetwin.workloads.plugins import plugin_name
from servetwin.workloads.request import Request

# Times of decisions per replica, most of them overtaken by new plans, after which none is kept.
_MOST_NOTES = 4


class OnDemand:
    """Simulates replicas from which nothing follows until a request or a router comes to them.

    What such a replica does between two requests of its own disturbs no other, and nothing disturbs
    it. So it needs no events: a request that comes to it, and a router that reads loads, first let
    it catch up. Where no router reads loads, replicas that get no request are left alone.
    """

    def __init__(self, replicas: Listed[Replica]) -> None:
        # The tick up to which nothing more comes.
        self.now = 0
        self._replicas = replicas
        # Once a router has read loads, a heap of the next decisions (``pair`` of tick and place).
        self._due: list[int] = []
        self._is_read = False
        for replica in replicas:
            replica.on_demand = True

    def catch_up(self) -> None:
        """Simulate all that happens on any replica before now."""
        due, replicas, tick = self._due, self._replicas, self.now
        if not self._is_read:
            self._is_read = True
            due += [pair(r.due, place) for place, r in enumerate(replicas) if r.due < NEVER]
            heapify(due)
        end = pair(tick, 0)
        while due and due[0] < end:
            place = due[0] & PLACES
            replica = replicas[place]
            if pair(replica.due, place) == due[0]:  # else the plan has changed: it is here twice
                replica.catch_up(tick)
                if replica.due < NEVER:
                    heapreplace(due, pair(replica.due, place))
                    continue
            heappop(due)

    def submit(self, place: int, seq: Sequence, horizon: int) -> Refusal | None:
        """Submit a sequence to a replica now; before ``horizon`` nothing else comes."""
        replica = self._replicas[place]
        due = replica.due
        if due < self.now:
            replica.catch_up(self.now)
        refusal = replica.submit_at(seq, self.now)
        if self._is_read:
            replica.catch_up(horizon)  # soon needed, and its data are at hand now
            if replica.due != due and replica.due < NEVER:
                self._note(place)
        return refusal

    def _note(self, place: int) -> None:
        heappush(self._due, pair(self._replicas[place].due, place))
        if len(self._due) > _MOST_NOTES * len(self._replicas):  # no router reads loads any more
            self._due.clear()
            self._is_read = False

    def finish(self) -> None:
        """Simulate every replica to its end."""
        for replica in self._replicas:
            replica.catch_up(NEVER)


Role = Literal["serve", "prefill", "decode"]
# Prepares a sequence for the replica of that index and records its arrival there.
Enter = Callable[[Sequence, int], None]


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Equal replicas on equal hardware.

    ``role`` says whether they serve whole requests, compute prompts only, or decode only. ``noise``
    is a sample of factors on step durations (None: no noise). ``ranks`` of each replica share its
    experts and step together. ``speed`` is the speed of a replica,
    relative to those of other pools, that load-aware routers assume. ``acceptance`` is the
    distribution of the tokens that come out of a pass that verifies drafts.
    """

    policies: PolicyConfig
    step_time: StepTime
    replicas: int = 1
    role: Role = "serve"
    noise: NoiseSample | None = None
    speed: float = 1.0
    acceptance: Acceptance | None = None
    ranks: int = 1

    def __post_init__(self) -> None:
        require(self.replicas >= 1, "replicas", self.replicas, "at least 1")
        require(self.ranks >= 1, "ranks", self.ranks, "at least 1")
        if self.role == "decode" and self.policies.batching == "static":
            raise PolicyError(
                "batching: 'static' cannot take in prompts that another pool computed; a decode "
                "pool wants continuous, chunked, prefill-first or insertion"
            )


@dataclass(eq=False)
class RoutedReplicas:
    """Replicas behind a router; their loads are kept for a router that may read them."""

    replicas: Listed[Replica]
    replica_loads: ReplicaLoads
    build_router: Callable[[ReplicaLoads], Router]

    def __post_init__(self) -> None:
        self.env, self.recorder = self.replicas[0].env, self.replicas[0].recorder
        self.router = self.build_router(self.replica_loads)
        self.all, self._speeds = self.replicas, self.replica_loads.speeds
        self._all_keys = [keys_of(replica.scheduler.memory) for replica in self.replicas]
        self._keys = self._all_keys
        self._kinds_of_keys = dict.fromkeys(filter(None, self._all_keys))
        self._places = range(len(self.replicas))
        # The number, among all, of the replica at each place.
        self._members: Listed[int] = self._places
        # The place of each of all replicas, -1 of one that the router does not see.
        self._place_of: Listed[int] = self._places
        self._on_demand: OnDemand | None = None
        self._keeps_loads = not is_blind(self.router)
        if self._keeps_loads:
            self.replica_loads.read_load = self._load
            self.replica_loads.read_hits = self._hits
            for number, replica in enumerate(self.replicas):
                replica.listeners.append(partial(self.take_out, number))

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` for every sequence that ends on any replica."""
        for replica in self.replicas:
            replica.listeners.append(listener)

    def regroup(self, members: Listed[int]) -> None:
        """Let the router see the replicas of these numbers only; it is built anew for them.

        Their loads stay, and a router with ``take_over`` keeps what it knows of them. Nothing
        happens where it sees these.
        """
        if members == self._members:
            return
        place_of = [-1] * len(self.all)
        for place, number in enumerate(members):
            place_of[number] = place
        moved = [place_of[number] for number in self._members]
        self._members, self._place_of, self._places = list(members), place_of, range(len(members))
        self.replicas = [self.all[number] for number in members]
        self._keys = [self._all_keys[number] for number in members]
        speeds = [self._speeds[number] for number in members]
        self.replica_loads = self.replica_loads.moved(moved, speeds)
        if members:
            before, self.router = self.router, self.build_router(self.replica_loads)
            if moved and hasattr(self.router, "take_over"):
                self.router.take_over(before, moved)

    def run_on_demand(self) -> OnDemand:
        """Let replicas from which nothing follows run ahead on their own; return what runs them."""
        on_demand = self._on_demand = OnDemand(self.replicas)
        self.replica_loads.before_report = on_demand.catch_up
        return on_demand

    def receive(
        self, request: Request, row: int, enter: Enter | None = None, avoided: int = -1
    ) -> None:
        """Send a request to the replica that the router chooses; the next where it is ``avoided``.

        Raises ``PolicyError`` if there is no such replica.
        """
        now = self.env.tick
        self.receive_at(now, now, request, row, enter, avoided)

    def receive_at(
        self, now: int, horizon: int, request: Request, row: int, enter: Enter | None = None,
        avoided: int = -1,
    ) -> None:  # fmt: skip
        """Do the same at the tick ``now``; nothing else comes before ``horizon``."""
        now_s, on_demand = now * SECONDS_PER_TICK, self._on_demand
        if on_demand is not None:
            on_demand.now = now
        place = self.router.choose(request, now_s)
        if place not in self._places:
            raise self._no_such(place, request)
        if self._members[place] == avoided:
            place = (place + 1) % len(self._places)
        replica = self.replicas[place]
        seq = as_sequence(request, now_s, self._keys[place], row)
        (enter or self.recorder.arrived)(seq, replica.index)
        if self._keeps_loads:
            self.replica_loads.sent(place, seq.prompt_tokens + seq.max_tokens, now_s)
        if on_demand is not None:
            refusal = on_demand.submit(place, seq, horizon)
        else:
            refusal = replica.submit_at(seq, now)
        if refusal:
            self._refused(replica, seq, refusal, now_s)

    def _refused(self, replica: Replica, seq: Sequence, refusal: Refusal, now_s: float) -> None:
        self.recorder.refused(seq, refusal)
        replica.event_s = now_s
        for listener in replica.listeners:
            listener(seq, refusal)

    def _no_such(self, place: int, request: Request) -> PolicyError:
        return PolicyError(
            f"router: {plugin_name(self.router)} chose replica {place!r} for request "
            f"{request.request_id!r}; there are replicas 0 to {len(self.replicas) - 1}"
        )

    def _load(self, place: int) -> Load:
        return self.replicas[place].scheduler.load()

    def _hits(self, request: Request) -> list[int]:
        """Return the tokens of a prompt that each cache holds; nothing where no block is named."""
        if not request.prefix_block_ids:
            return []
        named = {keys: as_sequence(request, 0.0, keys) for keys in self._kinds_of_keys}
        each = zip(self.replicas, self._keys, strict=True) if named else ()
        return [r.scheduler.memory.cached_prefix(named[keys]) if keys else 0 for r, keys in each]

    def take_out(self, number: int, seq: Sequence, refusal: Refusal | None) -> None:
        """Take a sequence that has ended out of the load of the replica of this number."""
        place = self._place_of[number]
        if place >= 0:
            ended_s = self.all[number].event_s
            self.replica_loads.ended(place, seq.prompt_tokens + seq.max_tokens, ended_s)
