"""The registered policies of each kind, and who reads which setting."""

from typing import TYPE_CHECKING, Any

from servetwin.workloads.plugins import Registry
from servetwin.workloads.program.package import shipped_json

if TYPE_CHECKING:
    from servetwin.policies.protocols import KVMemory, Scheduler, WaitingQueue
    from servetwin.policies.routers.router import Router

# Each kind of plug-in with its classes by name; ``readers`` and ``least`` of settings.
TABLES: dict[str, dict[str, Any]] = shipped_json("policies/registry.json")
SCHEDULERS: "Registry[Scheduler]" = Registry(**TABLES["schedulers"])
MEMORIES: "Registry[KVMemory]" = Registry(**TABLES["memories"])
ROUTERS: "Registry[Router]" = Registry(**TABLES["routers"])
EVICTION_ORDERS: Registry[Any] = Registry(**TABLES["evictions"])
QUEUES: "Registry[WaitingQueue]" = Registry(**TABLES["queues"])
