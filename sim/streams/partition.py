"""How a simulation is divided into parts that know nothing of each other, and when it cannot be.

==========  ======================================================================================
time        one server: cut where it is empty. What comes later cannot depend on what was before,
            as long as nothing outlasts the requests: no cache, no noise by number of the step
replicas    several servers behind a router that looks at no state: which server gets a request is
            known without simulating any of them
==========  ======================================================================================
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import MEMORIES, ROUTERS, SCHEDULERS
from servetwin.policies.routers.routing import BLIND_ROUTERS
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.step_times.step_time import StepNoise
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.plugins import names_a_file

BLIND_NAMES = tuple(name for name, router in ROUTERS.items() if router in BLIND_ROUTERS)
"""The names of the routers that look at no state."""


@dataclass(frozen=True, slots=True)
class Part:
    """Requests from row ``first`` up to and without ``last``, on some ``replicas`` (None: all)."""

    first: int
    last: int
    replicas: frozenset[int] | None = None

    @property
    def name(self) -> str:
        """What a message calls it."""
        share = "" if self.replicas is None else f", replicas from {min(self.replicas)} on"
        return f"part of the requests {self.first:,} to {self.last:,}{share}"


def has_one_server(scenario: Scenario) -> bool:
    """Return whether a scenario is cut by time; a cluster is cut by replicas."""
    return len(scenario.servers()) == 1 and not scenario.cluster.splits


def require_partitionable(scenario: Scenario) -> None:
    """Raise ``PolicyError``, with the key, where parts of a run would depend on each other."""
    why = _time_hindrance(scenario) if has_one_server(scenario) else _replica_hindrance(scenario)
    if why:
        raise PolicyError(f"--partitions: {why}; leave --partitions out")


def _replica_hindrance(scenario: Scenario) -> str | None:
    cluster = scenario.cluster
    if cluster.splits:
        return "prefill_replicas: prompts and decodes of a request are on different servers"
    if cluster.router not in BLIND_NAMES:
        looks = "looks at" if cluster.router in ROUTERS else "may look at"
        known = ", ".join(BLIND_NAMES)
        return f"router: {cluster.router!r} {looks} the state of the replicas; {known} do not"
    return None


def _time_hindrance(scenario: Scenario) -> str | None:
    policies = scenario.policies
    if policies.prefix_cache:
        return "prefix_cache: the cache outlasts the requests that filled it"
    if policies.queue_order == "fair":
        return "queue_order: 'fair' remembers the service of each tenant"
    for key, name, known in (
        ("batching", policies.batching, SCHEDULERS), ("kv", policies.kv, MEMORIES),
    ):  # fmt: skip
        if names_a_file(name) or name not in known:
            return f"{key}: {name!r} may remember what was before"
    return _noise_hindrance(scenario, policies)


def _noise_hindrance(scenario: Scenario, policies: PolicyConfig) -> str | None:
    layout = build_scheduler(policies).memory.layout
    sample = scenario.profile.step_time(layout).noise_factors()
    if StepNoise(sample, np.random.default_rng(0)).is_none():
        return None
    return f"profile: {scenario.profile.name} has noise, drawn by the number of the step"


def parts_of(scenario: Scenario, requests: int, cuts: Sequence[int], parts: int) -> list[Part]:
    """Divide a run: one server before the requests ``cuts``, a cluster into ``parts`` shares."""
    if has_one_server(scenario):
        ends = [*cuts, requests]
        return [Part(first, last) for first, last in zip([0, *cuts], ends, strict=True)]
    replicas = range(len(scenario.servers()))
    shares = min(parts, len(replicas))
    return [Part(0, requests, frozenset(replicas[share::shares])) for share in range(shares)]


def joined(parts: Sequence[Part], was_empty: Sequence[bool]) -> list[list[Part]]:
    """Group consecutive parts of one server that were not separated by an empty moment.

    ``was_empty`` says of each cut between two parts whether the server was empty there.
    """
    groups = [[parts[0]]]
    for part, empty in zip(parts[1:], was_empty, strict=True):
        if empty:
            groups.append([part])
        else:
            groups[-1].append(part)
    return groups
