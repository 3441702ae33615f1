"""The registered KV memories and routers, beside the schedulers; and how a scheduler is built."""

from typing import TYPE_CHECKING

from servetwin.policies.schedulers.registry import SCHEDULERS as SCHEDULERS
from servetwin.workloads.plugins import Registry

if TYPE_CHECKING:
    import numpy as np

    from servetwin.policies.config import PolicyConfig
    from servetwin.policies.protocols import KVMemory, Scheduler
    from servetwin.policies.routers.replica_loads import ReplicaLoads, RouterConfig
    from servetwin.policies.routers.router import Router

MEMORIES: "Registry[KVMemory]" = Registry(
    "kv",
    "KV memory",
    "servetwin.policies.protocols:KVMemory",
    "config",
    {
        "contiguous": "servetwin.policies.kv.contiguous:ContiguousKV",
        "paged": "servetwin.policies.kv.paged:PagedKV",
        "windowed": "servetwin.policies.kv.windowed:WindowedKV",
    },
)
ROUTERS: "Registry[Router]" = Registry(
    "router",
    "router",
    "servetwin.policies.routers.router:Router",
    "loads, config, rng",
    {
        "round-robin": "servetwin.policies.routers.routing:RoundRobin",
        "random": "servetwin.policies.routers.routing:RandomChoice",
        "least-outstanding": "servetwin.policies.routers.routing:LeastOutstanding",
        "least-tokens": "servetwin.policies.routers.routing:LeastTokens",
        "power-of-two": "servetwin.policies.routers.routing:PowerOfTwo",
        "session-affinity": "servetwin.policies.routers.routing:SessionAffinity",
        "prefix-affinity": "servetwin.policies.routers.prefix_affinity:PrefixAffinity",
    },
)


def build_scheduler(config: "PolicyConfig") -> "Scheduler":
    """Return the scheduler of ``config``, over the memory of ``config``.

    With a class loaded by path, the scheduler runs under ``InvariantChecked``.

    Raises ``PolicyError`` for an unknown name, ``PluginError`` for a class that cannot be used.
    """
    scheduler = SCHEDULERS.build(config.batching, MEMORIES.build(config.kv, config), config)
    if config.batching in SCHEDULERS and config.kv in MEMORIES:
        return scheduler
    from servetwin.policies.invariants import InvariantChecked

    return InvariantChecked(scheduler, config)


def build_router(
    loads: "ReplicaLoads", config: "RouterConfig", rng: "np.random.Generator"
) -> "Router":
    """Return the router of ``config`` before the replicas of ``loads``; ``rng`` is its own stream.

    Raises ``PolicyError`` for an unknown name, ``PluginError`` for a class that cannot be used.
    """
    return ROUTERS.build(config.router, loads, config, rng)
