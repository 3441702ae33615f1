"""What a workload says of a prefix cache, and what would say more."""

from typing import Any

from servetwin.app.dashboard.scenario.controls import ASSUMED_PREFIX, CONVERSATIONS, SHARED_PREFIX
from servetwin.app.dashboard.simulations import SimulatedScenario
from servetwin.app.scenario.files.scenario_file import Workload
from servetwin.workloads.statistics.prefix_reuse import why_no_hits
from servetwin.workloads.trace import Trace

CANNOT_TELL = "the trace cannot tell"
"""In place of a difference that only a prefix cache could make."""
_SETTINGS = {"prefix_cache", "prefix_index", "eviction", "host_cache_tokens"}
"""Settings of policies that change nothing unless a prefix cache can hit."""
_NO_SETTINGS: dict[str, Any] = {"policies": {}, "cluster": {}, "preset": None}


def prefix_advice(workload: Workload, trace: Trace) -> str | None:
    """Return that a prefix cache cannot hit on the requests of a workload, or that nothing is
    known, and what would tell; None where it can hit."""
    why = why_no_hits(trace)
    if why is None:
        return None
    if workload.is_generated:
        return (
            "Generated prompts have nothing in common, so a prefix cache cannot hit; "
            f"**{SHARED_PREFIX}** at the side gives them a common beginning."
        )
    if trace.has_prefix_ids:
        return f"A prefix cache cannot hit on this trace: {why}."
    sessions = any(request.session_id for request in trace)
    assumed = " or ".join(f"**{name}**" for name in (CONVERSATIONS,) * sessions + (ASSUMED_PREFIX,))
    return (
        f"What a prefix cache does, {CANNOT_TELL}: {why}. A trace with ids of the blocks of its "
        "prompts can tell (`prefix_block_ids`, or `hash_ids` as in Mooncake traces); at the side, "
        f"{assumed} fills them in."
    )


def only_prefix_cache_differs(a: SimulatedScenario, b: SimulatedScenario) -> bool:
    """Return whether all that differs is a prefix cache that can hit in neither."""
    before, after = a.scenario.policies.as_dict(), b.scenario.policies.as_dict()
    differing = {name for name in before if before[name] != after[name]}
    if not differing or not differing <= _SETTINGS:
        return False
    files = [one.file.model_copy(update=_NO_SETTINGS) for one in (a, b)]
    places = [(one.digest, one.scenario.cluster, one.scenario.eager_preset) for one in (a, b)]
    return (files[0], places[0]) == (files[1], places[1]) and why_no_hits(a.trace) is not None
