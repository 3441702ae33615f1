"""The registered policies of each kind, and who reads which setting."""

import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from servetwin.workloads.plugins import Registry

if TYPE_CHECKING:
    from servetwin.policies.protocols import KVMemory, Scheduler, WaitingQueue
    from servetwin.policies.routers.router import Router

TABLES: dict[str, dict[str, Any]] = json.loads(
    resources.files("servetwin.policies").joinpath("registry.json").read_text("utf-8")
)
"""Classes by name; ``readers`` and ``least`` of settings (``policies.config``)."""
SCHEDULERS: "Registry[Scheduler]" = Registry(
    "batching", "scheduler", "servetwin.policies.protocols:Scheduler", "memory, config",
    TABLES["schedulers"],
)  # fmt: skip
MEMORIES: "Registry[KVMemory]" = Registry(
    "kv", "KV memory", "servetwin.policies.protocols:KVMemory", "config", TABLES["memories"],
)  # fmt: skip
ROUTERS: "Registry[Router]" = Registry(
    "router", "router", "servetwin.policies.routers.router:Router", "loads, config, rng",
    TABLES["routers"],
)  # fmt: skip
EVICTION_ORDERS: Registry[Any] = Registry(
    "eviction", "eviction order", "servetwin.policies.prefix.eviction:EvictionOrder", "",
    TABLES["evictions"], checks="servetwin.policies.prefix.eviction:RETURNED",
)  # fmt: skip
QUEUES: "Registry[WaitingQueue]" = Registry(
    "queue_order", "waiting queue", "servetwin.policies.protocols:WaitingQueue", "memory",
    TABLES["queues"],
)  # fmt: skip
