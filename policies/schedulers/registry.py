"""The registered schedulers. The settings of the policies read what a scheduler declares."""

from typing import TYPE_CHECKING

from workloads.plugins import Registry

if TYPE_CHECKING:
    from policies.protocols import Scheduler

SCHEDULERS: "Registry[Scheduler]" = Registry(
    "batching",
    "scheduler",
    "policies.protocols:Scheduler",
    "memory, config",
    {
        "static": "policies.schedulers.static:StaticBatching",
        "insertion": "policies.schedulers.insertion:DynamicInsertion",
        "continuous": "policies.schedulers.continuous:ContinuousBatching",
        "prefill-first": "policies.schedulers.prefill_first:PrefillFirst",
        "chunked": "policies.schedulers.chunked:ChunkedPrefill",
        "unified": "policies.schedulers.unified:UnifiedBatching",
        "speculative": "policies.schedulers.speculative:SpeculativeBatching",
        "beam": "policies.schedulers.beam:BeamSearch",
    },
    prepare="policies.old_methods:adopt_old_methods",
)
