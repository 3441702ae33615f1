"""Exact results for simple servers: what the simulator must meet where its settings degenerate."""

from servetwin.sim.theory.batches import BatchQueue as BatchQueue
from servetwin.sim.theory.batches import batch_service as batch_service
from servetwin.sim.theory.batches import batch_service_bounds_s as batch_service_bounds_s
from servetwin.sim.theory.batches import bounded_batch_service as bounded_batch_service
from servetwin.sim.theory.batches import exponential_slot_efficiency as exponential_slot_efficiency
from servetwin.sim.theory.batches import gated_idle_probability as gated_idle_probability
from servetwin.sim.theory.batches import gated_mean_in_system as gated_mean_in_system
from servetwin.sim.theory.batches import gated_sojourn_s as gated_sojourn_s
from servetwin.sim.theory.batches import geometric_slot_efficiency as geometric_slot_efficiency
from servetwin.sim.theory.batches import mean_longest as mean_longest
from servetwin.sim.theory.batches import sampled_slot_efficiency as sampled_slot_efficiency
from servetwin.sim.theory.batches import static_batch_makespan_s as static_batch_makespan_s
from servetwin.sim.theory.batches import uniform_slot_efficiency as uniform_slot_efficiency
from servetwin.sim.theory.batches import (
    uniform_slot_efficiency_limit as uniform_slot_efficiency_limit,
)
from servetwin.sim.theory.checks import TheoryError as TheoryError
from servetwin.sim.theory.distributed import goodput_per_device_per_s as goodput_per_device_per_s
from servetwin.sim.theory.distributed import kv_transfer_s as kv_transfer_s
from servetwin.sim.theory.distributed import pipeline_bubble as pipeline_bubble
from servetwin.sim.theory.distributed import pipeline_first_token_s as pipeline_first_token_s
from servetwin.sim.theory.distributed import pipeline_makespan_s as pipeline_makespan_s
from servetwin.sim.theory.distributed import pipeline_token_interval_s as pipeline_token_interval_s
from servetwin.sim.theory.distributed import pipeline_utilisation as pipeline_utilisation
from servetwin.sim.theory.distributed import pipelined_prefill_ttft_s as pipelined_prefill_ttft_s
from servetwin.sim.theory.distributed import prefill_ttft_s as prefill_ttft_s
from servetwin.sim.theory.distributed import (
    tensor_parallel_prefill_ttft_s as tensor_parallel_prefill_ttft_s,
)
from servetwin.sim.theory.kv_memory import ForkedBlocks as ForkedBlocks
from servetwin.sim.theory.kv_memory import RegionUse as RegionUse
from servetwin.sim.theory.kv_memory import copy_on_write as copy_on_write
from servetwin.sim.theory.kv_memory import mean_paged_waste_tokens as mean_paged_waste_tokens
from servetwin.sim.theory.kv_memory import region_use as region_use
from servetwin.sim.theory.kv_memory import sampled_paged_waste_tokens as sampled_paged_waste_tokens
from servetwin.sim.theory.kv_memory import sampled_region_use as sampled_region_use
from servetwin.sim.theory.many_servers import erlang_b as erlang_b
from servetwin.sim.theory.many_servers import erlang_c as erlang_c
from servetwin.sim.theory.many_servers import kaufman_roberts as kaufman_roberts
from servetwin.sim.theory.many_servers import mg_infinity_probability as mg_infinity_probability
from servetwin.sim.theory.many_servers import mg_infinity_quantile as mg_infinity_quantile
from servetwin.sim.theory.many_servers import mmc_wait_quantile_s as mmc_wait_quantile_s
from servetwin.sim.theory.many_servers import mmc_wait_s as mmc_wait_s
from servetwin.sim.theory.networks import ClosedLoop as ClosedLoop
from servetwin.sim.theory.networks import closed_loop as closed_loop
from servetwin.sim.theory.networks import (
    closed_loop_throughput_bound_per_s as closed_loop_throughput_bound_per_s,
)
from servetwin.sim.theory.networks import littles_law_gap as littles_law_gap
from servetwin.sim.theory.networks import number_integral_s as number_integral_s
from servetwin.sim.theory.networks import tandem_sojourn_s as tandem_sojourn_s
from servetwin.sim.theory.priority import PriorityClass as PriorityClass
from servetwin.sim.theory.priority import priority_waits_s as priority_waits_s
from servetwin.sim.theory.priority import sjf_waits_s as sjf_waits_s
from servetwin.sim.theory.single_server import md1_wait_s as md1_wait_s
from servetwin.sim.theory.single_server import mg1_wait_s as mg1_wait_s
from servetwin.sim.theory.single_server import mm1_sojourn_quantile_s as mm1_sojourn_quantile_s
from servetwin.sim.theory.single_server import mm1_sojourn_s as mm1_sojourn_s
from servetwin.sim.theory.single_server import mm1_wait_relative_error as mm1_wait_relative_error
from servetwin.sim.theory.single_server import (
    processor_sharing_sojourn_s as processor_sharing_sojourn_s,
)
