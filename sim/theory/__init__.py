"""Exact results for simple servers: what the simulator must meet where its settings degenerate."""

from sim.theory.batch_service import BatchQueue, batch_service, batch_service_bounds_s
from sim.theory.bounded_batch import bounded_batch_service
from sim.theory.checks import TheoryError
from sim.theory.disaggregation import (
    goodput_per_device_per_s,
    kv_transfer_s,
    pipelined_prefill_ttft_s,
    prefill_ttft_s,
    tensor_parallel_prefill_ttft_s,
)
from sim.theory.gated import gated_idle_probability, gated_mean_in_system, gated_sojourn_s
from sim.theory.kv_memory import (
    ForkedBlocks,
    RegionUse,
    copy_on_write,
    mean_paged_waste_tokens,
    region_use,
    sampled_paged_waste_tokens,
    sampled_region_use,
)
from sim.theory.littles_law import littles_law_gap, number_integral_s
from sim.theory.loss import erlang_b, kaufman_roberts
from sim.theory.many_servers import (
    erlang_c,
    mg_infinity_probability,
    mg_infinity_quantile,
    mmc_wait_quantile_s,
    mmc_wait_s,
)
from sim.theory.networks import (
    ClosedLoop,
    closed_loop,
    closed_loop_throughput_bound_per_s,
    tandem_sojourn_s,
)
from sim.theory.pipeline import (
    pipeline_bubble,
    pipeline_first_token_s,
    pipeline_makespan_s,
    pipeline_token_interval_s,
    pipeline_utilisation,
)
from sim.theory.priority import PriorityClass, priority_waits_s, sjf_waits_s
from sim.theory.single_server import (
    md1_wait_s,
    mg1_wait_s,
    mm1_sojourn_quantile_s,
    mm1_sojourn_s,
    mm1_wait_relative_error,
    processor_sharing_sojourn_s,
)
from sim.theory.static_batch import (
    exponential_slot_efficiency,
    geometric_slot_efficiency,
    mean_longest,
    sampled_slot_efficiency,
    static_batch_makespan_s,
    uniform_slot_efficiency,
    uniform_slot_efficiency_limit,
)

__all__ = [
    "BatchQueue",
    "ClosedLoop",
    "ForkedBlocks",
    "PriorityClass",
    "RegionUse",
    "TheoryError",
    "batch_service",
    "batch_service_bounds_s",
    "bounded_batch_service",
    "closed_loop",
    "closed_loop_throughput_bound_per_s",
    "copy_on_write",
    "erlang_b",
    "erlang_c",
    "exponential_slot_efficiency",
    "gated_idle_probability",
    "gated_mean_in_system",
    "gated_sojourn_s",
    "geometric_slot_efficiency",
    "goodput_per_device_per_s",
    "kaufman_roberts",
    "kv_transfer_s",
    "littles_law_gap",
    "md1_wait_s",
    "mean_longest",
    "mean_paged_waste_tokens",
    "mg1_wait_s",
    "mg_infinity_probability",
    "mg_infinity_quantile",
    "mm1_sojourn_quantile_s",
    "mm1_sojourn_s",
    "mm1_wait_relative_error",
    "mmc_wait_quantile_s",
    "mmc_wait_s",
    "number_integral_s",
    "pipeline_bubble",
    "pipeline_first_token_s",
    "pipeline_makespan_s",
    "pipeline_token_interval_s",
    "pipeline_utilisation",
    "pipelined_prefill_ttft_s",
    "prefill_ttft_s",
    "priority_waits_s",
    "processor_sharing_sojourn_s",
    "region_use",
    "sampled_paged_waste_tokens",
    "sampled_region_use",
    "sampled_slot_efficiency",
    "sjf_waits_s",
    "static_batch_makespan_s",
    "tandem_sojourn_s",
    "tensor_parallel_prefill_ttft_s",
    "uniform_slot_efficiency",
    "uniform_slot_efficiency_limit",
]
