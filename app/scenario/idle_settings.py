"""Settings that change nothing on these servers and this load, which is said."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sim.experiments.scenario import Scenario
from workloads.trace import Trace

if TYPE_CHECKING:
    from workloads.streams.streamed_trace import StreamedTrace


def idle_settings(scenario: Scenario, trace: "Trace | StreamedTrace") -> Iterator[str]:
    """Yield a note for each; of a streamed trace only the rows that are read are known."""
    config, cluster = scenario.policies, scenario.cluster
    if config.batching == "speculative" and not config.draft_rows:
        yield (
            "batching: speculative has no drafts to verify here; --technique speculative makes them"
        )
    if config.batching == "beam" and isinstance(trace, Trace) and not _wants_several(trace):
        yield (
            "batching: beam: every request of this trace wants one answer, so no beam forks; "
            "workload generate --samples K wants several"
        )
    if cluster.splits and cluster.replicas > 1:
        yield (
            f"replicas {cluster.replicas} changes nothing: prompts and decodes have servers of "
            f"their own (prefill_replicas {cluster.prefill_replicas}, decode_replicas "
            f"{cluster.decode_replicas})"
        )


def _wants_several(trace: Trace) -> bool:
    return any(request.samples > 1 for request in trace)
