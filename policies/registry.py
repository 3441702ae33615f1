"""The registered KV memories and routers, beside the schedulers; and how a scheduler is built."""

from typing import TYPE_CHECKING

from policies.schedulers.registry import SCHEDULERS as SCHEDULERS
from workloads.plugins import Registry

if TYPE_CHECKING:
    import numpy as np

    from policies.config import PolicyConfig
    from policies.protocols import KVMemory, Scheduler
    from policies.routers.replica_loads import ReplicaLoads, RouterConfig
    from policies.routers.router import Router

MEMORIES: "Registry[KVMemory]" = Registry(
    "kv",
    "KV memory",
    "policies.protocols:KVMemory",
    "config",
    {
        "contiguous": "policies.kv.contiguous:ContiguousKV",
        "paged": "policies.kv.paged:PagedKV",
        "windowed": "policies.kv.windowed:WindowedKV",
    },
    prepare="policies.old_methods:adopt_old_methods",
)
ROUTERS: "Registry[Router]" = Registry(
    "router",
    "router",
    "policies.routers.router:Router",
    "loads, config, rng",
    {
        "round-robin": "policies.routers.routing:RoundRobin",
        "random": "policies.routers.routing:RandomChoice",
        "least-outstanding": "policies.routers.routing:LeastOutstanding",
        "least-tokens": "policies.routers.routing:LeastTokens",
        "power-of-two": "policies.routers.routing:PowerOfTwo",
        "session-affinity": "policies.routers.routing:SessionAffinity",
        "prefix-affinity": "policies.routers.prefix_affinity:PrefixAffinity",
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
    from policies.invariants import InvariantChecked

    return InvariantChecked(scheduler, config)


def build_router(
    loads: "ReplicaLoads", config: "RouterConfig", rng: "np.random.Generator"
) -> "Router":
    """Return the router of ``config`` before the replicas of ``loads``; ``rng`` is its own stream.

    Raises ``PolicyError`` for an unknown name, ``PluginError`` for a class that cannot be used.
    """
    return ROUTERS.build(config.router, loads, config, rng)
