"""The registered schedulers. The settings of the policies read what a scheduler declares."""

from typing import TYPE_CHECKING

from servetwin.workloads.plugins import Registry

if TYPE_CHECKING:
    from servetwin.policies.protocols import Scheduler

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
        "chunked": "servetwin.policies.schedulers.chunked:ChunkedPrefill",
        "unified": "servetwin.policies.schedulers.unified:UnifiedBatching",
        "speculative": "servetwin.policies.schedulers.speculative:SpeculativeBatching",
        "beam": "servetwin.policies.schedulers.beam:BeamSearch",
    },
)
