"""The registered schedulers, KV memories and routers, and how a server gets its own."""

from typing import TYPE_CHECKING

from servetwin.workloads.plugins import Registry

if TYPE_CHECKING:
    import numpy as np

    from servetwin.policies.config import PolicyConfig
    from servetwin.policies.protocols import KVMemory, Router, Scheduler
    from servetwin.policies.routers.replica_loads import ReplicaLoads, RouterConfig

SCHEDULERS: "Registry[Scheduler]" = Registry(
    "batching",
    "scheduler",
    "servetwin.policies.protocols:Scheduler",
    "memory, config",
    {
        "static": "servetwin.policies.schedulers.static:StaticBatching",
        "insertion": "servetwin.policies.schedulers.insertion:DynamicInsertion",
        "continuous": "servetwin.policies.schedulers.continuous:ContinuousBatching",
        "prefill-first": "servetwin.policies.schedulers.prefill_first:PrefillFirst",
        "chunked": "servetwin.policies.schedulers.iteration_level:ChunkedPrefill",
        "unified": "servetwin.policies.schedulers.unified:UnifiedBatching",
        "speculative": "servetwin.policies.schedulers.speculative:SpeculativeBatching",
        "beam": "servetwin.policies.schedulers.beam:BeamSearch",
    },
)
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
    "servetwin.policies.protocols:Router",
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


def build_scheduler(config: "PolicyConfig", check: bool = False) -> "Scheduler":
    """Return the scheduler of ``config``, over the memory of ``config``.

    With a class of the user, the scheduler runs under ``InvariantChecked``; with ``check`` every
    scheduler does, and all is checked after each call.

    Raises ``PolicyError`` for an unknown name, ``PluginError`` for a class that cannot be used.
    """
    scheduler = SCHEDULERS.build(config.batching, MEMORIES.build(config.kv, config), config)
    if not check and config.batching in SCHEDULERS and config.kv in MEMORIES:
        return scheduler
    from servetwin.policies.invariants import InvariantChecked

    return InvariantChecked(scheduler, config, every_call=check)


def build_router(
    loads: "ReplicaLoads", config: "RouterConfig", rng: "np.random.Generator"
) -> "Router":
    """Return the router of ``config`` before the replicas of ``loads``; ``rng`` is its own stream.

    Raises ``PolicyError`` for an unknown name, ``PluginError`` for a class that cannot be used.
    """
    return ROUTERS.build(config.router, loads, config, rng)
