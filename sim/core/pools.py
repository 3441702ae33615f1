"""Groups of replicas: equal servers in a pool, and one or more pools behind a router."""

from collections.abc import Callable
from collections.abc import Sequence as Listed
from dataclasses import dataclass
from functools import partial
from typing import Literal

from policies.block_keys import BlockKeys, PrefixKeys
from policies.config import PolicyConfig, require
from policies.protocols import KVMemory, Refusal
from policies.routers.replica_loads import ReplicaLoads
from policies.routers.routing import Router
from policies.sequence import Sequence
from sim.core.replica import Listener, Replica
from sim.core.simulate import as_sequence
from sim.step_times.acceptance import Acceptance
from sim.step_times.step_time import NoiseSample, StepTime
from sim.ticks import SECONDS_PER_TICK
from workloads.errors import PolicyError
from workloads.plugins import plugin_name
from workloads.request import Request

Role = Literal["serve", "prefill", "decode"]
Enter = Callable[[Sequence, int], None]
"""Prepares a sequence for the replica of that index and records its arrival there."""


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


@dataclass(eq=False)
class RoutedReplicas:
    """Replicas behind a router that sees their loads."""

    replicas: Listed[Replica]
    replica_loads: ReplicaLoads
    router: Router

    def __post_init__(self) -> None:
        self.env, self.recorder = self.replicas[0].env, self.replicas[0].recorder
        self._keys = [_keys(replica.scheduler.memory) for replica in self.replicas]
        for place, replica in enumerate(self.replicas):
            replica.listeners.append(partial(self._ended, place))

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` for every sequence that ends on any replica."""
        for replica in self.replicas:
            replica.listeners.append(listener)

    def receive(self, request: Request, row: int, enter: Enter | None = None) -> None:
        """Send a request to the replica that the router chooses.

        Raises ``PolicyError`` if there is no such replica.
        """
        now_s = self.env.now * SECONDS_PER_TICK
        place = self._choose(request, now_s)
        replica = self.replicas[place]
        seq = as_sequence(request, now_s, self._keys[place], row)
        (enter or self.recorder.arrived)(seq, replica.index)
        self.replica_loads.sent(place, seq.prompt_tokens + seq.max_tokens, now_s)
        if refusal := replica.submit(seq):
            self.recorder.refused(seq, refusal)
            for listener in replica.listeners:
                listener(seq, refusal)

    def _choose(self, request: Request, now_s: float) -> int:
        place = self.router.choose(request, now_s)
        if place not in range(len(self.replicas)):
            raise PolicyError(
                f"router: {plugin_name(self.router)} chose replica {place!r} for request "
                f"{request.request_id!r}; there are replicas 0 to {len(self.replicas) - 1}"
            )
        return place

    def _ended(self, place: int, seq: Sequence, refusal: Refusal | None) -> None:
        now_s = self.env.now * SECONDS_PER_TICK
        self.replica_loads.ended(place, seq.prompt_tokens + seq.max_tokens, now_s)


def _keys(memory: KVMemory) -> BlockKeys | None:
    return PrefixKeys(memory.block_tokens) if memory.shares_prefixes else None
