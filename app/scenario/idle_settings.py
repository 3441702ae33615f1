"""Settings that change nothing on these servers and this load, which is said."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.scenario import Scenario
from servetwin.workloads.plugins import names_a_file
from servetwin.workloads.trace import Trace

if TYPE_CHECKING:
    from servetwin.workloads.streams.streamed_trace import StreamedTrace

_READERS = {
    **dict.fromkeys(("draft_rows", "prompt_token"), ("batching", "speculative")),
    **dict.fromkeys(("full_prompt_gate", "long_prefill_tokens"), ("batching", "unified")),
    "decodes_between_prefills": ("batching", "prefill-first"),
    "pad_newcomers": ("batching", "insertion"),
    "padding": ("batching", "static"),
    **dict.fromkeys(("reservation", "rounding_waste"), ("kv", "contiguous")),
    "kv_window_tokens": ("kv", "windowed"),
}
"""The one policy that reads a setting: that of ``batching`` or ``kv``."""


def unread_settings(config: PolicyConfig) -> Iterator[str]:
    """Yield a note for each setting that is not at its default and that no policy reads.

    A policy of a file may read any.
    """
    usual = PolicyConfig()
    for key, (kind, reader) in _READERS.items():
        value, policy = getattr(config, key), getattr(config, kind)
        if value != getattr(usual, key) and policy != reader and not names_a_file(policy):
            yield f"{key} {value} changes nothing: only {kind}: {reader} reads it, not {policy}"


def idle_settings(scenario: Scenario, trace: "Trace | StreamedTrace") -> Iterator[str]:
    """Yield a note for each; of a streamed trace only the rows that are read are known."""
    config, cluster = scenario.policies, scenario.cluster
    yield from unread_settings(config)
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
