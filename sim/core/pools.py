"""Groups of replicas: equal servers in a pool, and one or more pools behind a router."""

from collections.abc import Callable
from collections.abc import Sequence as Listed
from dataclasses import dataclass
from functools import partial
from typing import Literal

from servetwin.policies.block_keys import BlockKeys, PrefixKeys
from servetwin.policies.config import PolicyConfig, require
from servetwin.policies.protocols import KVMemory, Refusal
from servetwin.policies.routers.replica_loads import ReplicaLoads
from servetwin.policies.routers.router import Router
from servetwin.policies.routers.routing import is_blind
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.on_demand import OnDemand
from servetwin.sim.core.replica import Listener, Replica
from servetwin.sim.core.simulate import as_sequence
from servetwin.sim.step_times.acceptance import Acceptance
from servetwin.sim.step_times.step_time import NoiseSample, StepTime
from servetwin.sim.ticks import SECONDS_PER_TICK
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.native_class import mypyc_attr
from servetwin.workloads.plugins import plugin_name
from servetwin.workloads.request import Request

Role = Literal["serve", "prefill", "decode"]
Enter = Callable[[Sequence, int], None]
"""Prepares a sequence for the replica of that index and records its arrival there."""


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Equal replicas on equal hardware.

    ``role`` says whether they serve whole requests, compute prompts only, or decode only. ``noise``
    is a sample of factors on step durations (None: no noise). ``speed`` is the speed of a replica,
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

    def __post_init__(self) -> None:
        require(self.replicas >= 1, "replicas", self.replicas, "at least 1")
        if self.role == "decode" and self.policies.batching == "static":
            raise PolicyError(
                "batching: 'static' cannot take in prompts that another pool computed; a decode "
                "pool wants continuous, chunked, prefill-first or insertion"
            )


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True)
class Share:
    """The numbers of the replicas that are simulated here.

    ``elsewhere`` gets the row of every request that went to another one.
    """

    replicas: frozenset[int]
    elsewhere: Callable[[int], None]


@dataclass(eq=False)
class RoutedReplicas:
    """Replicas behind a router; with a ``share``, only some are simulated.

    Their loads are kept for a router that may read them.
    """

    replicas: Listed[Replica]
    replica_loads: ReplicaLoads
    router: Router
    share: Share | None = None

    def __post_init__(self) -> None:
        self.env, self.recorder = self.replicas[0].env, self.replicas[0].recorder
        self._keys = [_keys(replica.scheduler.memory) for replica in self.replicas]
        self._places = range(len(self.replicas))
        self._on_demand: OnDemand | None = None
        self._keeps_loads = not is_blind(self.router)
        if self._keeps_loads:
            for place, replica in enumerate(self.replicas):
                replica.listeners.append(partial(self._ended, place))

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` for every sequence that ends on any replica."""
        for replica in self.replicas:
            replica.listeners.append(listener)

    def run_on_demand(self) -> OnDemand:
        """Let replicas from which nothing follows run ahead on their own; return what runs them."""
        on_demand = self._on_demand = OnDemand(self.replicas)
        self.replica_loads.before_report = on_demand.catch_up
        return on_demand

    def receive(self, request: Request, row: int, enter: Enter | None = None) -> None:
        """Send a request to the replica that the router chooses.

        Raises ``PolicyError`` if there is no such replica.
        """
        now = self.env.now
        self.receive_at(now, now, request, row, enter)

    def receive_at(
        self, now: int, horizon: int, request: Request, row: int, enter: Enter | None = None
    ) -> None:
        """Do the same at the tick ``now``; nothing else comes before ``horizon``."""
        now_s, on_demand = now * SECONDS_PER_TICK, self._on_demand
        if on_demand is not None:
            on_demand.now = now
        place = self.router.choose(request, now_s)
        if place not in self._places:
            raise self._no_such(place, request)
        replica = self.replicas[place]
        if self.share is not None and replica.index not in self.share.replicas:
            self.share.elsewhere(row)
            return
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

    def _ended(self, place: int, seq: Sequence, refusal: Refusal | None) -> None:
        ended_s = self.replicas[place].event_s
        self.replica_loads.ended(place, seq.prompt_tokens + seq.max_tokens, ended_s)


def _keys(memory: KVMemory) -> BlockKeys | None:
    return PrefixKeys(memory.block_tokens) if memory.shares_prefixes else None
