"""How a server gets its scheduler, its memory and its router."""

from typing import TYPE_CHECKING

from servetwin.policies.registry import MEMORIES, ROUTERS, SCHEDULERS

if TYPE_CHECKING:
    import numpy as np

    from servetwin.policies.config import PolicyConfig
    from servetwin.policies.protocols import Scheduler
    from servetwin.policies.routers.replica_loads import ReplicaLoads, RouterConfig
    from servetwin.policies.routers.router import Router


def build_scheduler(config: "PolicyConfig", check: bool = False) -> "Scheduler":
    """Return the scheduler of ``config``, over the memory of ``config``.

    With a class of the user, the scheduler runs under ``InvariantChecked``; with ``check`` every
    scheduler does, and all is checked after each call.

    Raises ``PolicyError`` for an unknown name, ``PluginError`` for a class that cannot be used.
    """
    memory = MEMORIES.build(config.kv, config)
    if config.decide_ahead:
        from servetwin.policies.schedulers.ahead import DecidedAhead

        scheduler: Scheduler = DecidedAhead(memory, config)
    else:
        scheduler = SCHEDULERS.build(config.batching, memory, config)
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
