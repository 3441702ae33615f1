"""The registered schedulers, KV memories and routers."""

from typing import TYPE_CHECKING

from servetwin.workloads.plugins import Registry

if TYPE_CHECKING:
    from servetwin.policies.protocols import KVMemory, Router, Scheduler

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
        "chunked": "servetwin.policies.schedulers.continuous:ChunkedPrefill",
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
        "grouped": "servetwin.policies.kv.grouped:GroupedKV",
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
        "vllm-dp": "servetwin.policies.routers.routing:VllmDataParallel",
        "power-of-two": "servetwin.policies.routers.routing:PowerOfTwo",
        "session-affinity": "servetwin.policies.routers.routing:SessionAffinity",
        "prefix-affinity": "servetwin.policies.routers.prefix_affinity:PrefixAffinity",
    },
)
