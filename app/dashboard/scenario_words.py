"""What pages say of simulated scenarios: what ran, intervals, prefix caches, sources of charts."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from servetwin.app.dashboard.charts import in_colour
from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.scenario.controls import CONTROLS
from servetwin.app.dashboard.scenario.uploads import whole_trace
from servetwin.app.dashboard.simulations import REPLICATIONS, SimulatedScenario
from servetwin.app.reports.run_words import grid_line, source_line
from servetwin.app.scenario.files.scenario_file import GENERATED_REQUESTS, ScenarioFile, Workload
from servetwin.app.scenario.scenarios import scenario_record
from servetwin.app.words import origin_words
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.scenario import devices_of
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.profile import Profile
from servetwin.sim.step_times.roofline.server import NEVER_FULL_TOKENS, RooflineServer
from servetwin.sim.step_times.server_model import ServerModel
from servetwin.workloads.statistics.statistics import why_no_hits
from servetwin.workloads.trace import Trace

_WITHOUT_BUDGET = ("static", "insertion")


def simulated_line(outcome: SimulatedScenario) -> str:
    """Return model, devices, origin of the step times, policies as resolved, and requests."""
    policies = outcome.scenario.policies
    origins = " and ".join(map(in_colour, dict.fromkeys(outcome.scenario.origins)))
    parts = [_batching(policies), _memory(policies), _requests(outcome)]
    return " · ".join([*_servers(outcome), f"step times {origins}", *parts])


def _servers(outcome: SimulatedScenario) -> list[str]:
    servers = outcome.scenario.servers()
    counted = Counter((model_of(server), *devices_of(server)) for server in servers)
    return [
        f"**{escaped(model)}** on {count * devices} × {escaped(device)}{_replicas(count, devices)}"
        for (model, device, devices), count in counted.items()
    ]


def model_of(server: ServerModel) -> str:
    """Return the name of the model of a server."""
    if isinstance(server, RooflineServer):
        return server.deployment.model.name
    if isinstance(server, Profile):
        return str(server.engine.get("model", server.name))
    return server.name.partition(" on ")[0]


def _replicas(count: int, devices: int) -> str:
    if count == 1:
        return ""
    return f" ({count} replicas{f' of {devices}' if devices > 1 else ''})"


def _batching(policies: PolicyConfig) -> str:
    text = f"{escaped(policies.batching)} batching, up to {policies.max_seqs:,} sequences"
    if policies.batching in _WITHOUT_BUDGET:
        return text
    return f"{text} and {policies.token_budget:,} tokens a step"


def _memory(policies: PolicyConfig) -> str:
    bounded = policies.kv_tokens < NEVER_FULL_TOKENS
    room = f"of {policies.kv_tokens:,} tokens" if bounded else "without a bound"
    cache = ", prefix cache" if policies.prefix_cache else ""
    return f"{escaped(policies.kv)} KV memory {room}{cache}"


def _requests(outcome: SimulatedScenario) -> str:
    workload, used = outcome.file.workload, len(outcome.trace)
    rate = "" if workload.rate_per_s is None else f" at {workload.rate_per_s:g} per second"
    if workload.is_generated:
        return f"{used:,} generated requests{rate}"
    trace = whole_trace(workload.source)
    total = used if trace is None else len(trace)
    return f"{used:,} of {total:,} requests of {escaped(workload.source)}{rate}"


def interval_sentence(outcome: SimulatedScenario) -> str:
    """Return what the intervals cover, and what they do not."""
    generated, certain = outcome.file.workload.is_generated, outcome.scenario.is_certain()
    known = origin_words(outcome.scenario.origins)
    unknown = f"the error of its step times ({known}) is unknown"
    if not outcome.is_drawn:
        return f"No intervals: a recorded trace does not vary, and {unknown}."
    sources = ["a new draw of the workload"] if generated else []
    if not certain:
        sources.append("a new draw of the uncertain step times")
    elif not generated:
        sources.append("new choices of the random router")
    missing = f" They do not cover the server: {unknown}." if certain else ""
    one = f" The large numbers are from one draw, seed {outcome.file.seed}." if generated else ""
    return (
        f"Intervals cover nine of ten of {REPLICATIONS} replications, each with "
        f"{' and '.join(sources)}.{one}{missing}"
    )


def simulated_source(outcomes: Iterable[SimulatedScenario]) -> str:
    """Return what was simulated, in one line; what several have in common stands once."""
    return source_line(list(map(recorded_run, outcomes)))


def recorded_run(outcome: SimulatedScenario) -> Run:
    """Return the run of a scenario with the record that a run folder would keep."""
    servers = outcome.file.deployment.settings()
    record = scenario_record(outcome.trace, outcome.scenario, servers, outcome.file.seed)
    return replace(outcome.run, scenario=record)


def grid_source(base: ScenarioFile) -> str:
    """Return what the scenarios of a grid around ``base`` have in common."""
    workload, servers = base.workload, base.deployment.settings()
    requests = workload.requests or (GENERATED_REQUESTS if workload.is_generated else None)
    return grid_line(servers, requests, workload.source, base.seed)


# In place of a difference that only a prefix cache could make.
CANNOT_TELL = "the trace cannot tell"
# Settings of policies that change nothing unless a prefix cache can hit.
_SETTINGS = {"prefix_cache", "prefix_index", "eviction", "host_cache_tokens"}
_NO_SETTINGS: dict[str, Any] = {"policies": {}, "cluster": {}, "preset": None}


def prefix_advice(workload: Workload, trace: Trace) -> str | None:
    """Return that a prefix cache cannot hit on the requests of a workload, or that nothing is
    known, and what would tell; None where it can hit."""
    why = why_no_hits(trace)
    if why is None:
        return None
    if workload.is_generated:
        return page_text("prefix.generated", control=CONTROLS["shared_prefix_tokens"].label)
    if trace.has_prefix_ids:
        return f"A prefix cache cannot hit on this trace: {why}."
    sessions = any(request.session_id for request in trace)
    names = ["conversations", "prefix_share"] if sessions else ["prefix_share"]
    assumed = " or ".join(f"**{CONTROLS[name].label}**" for name in names)
    return page_text("prefix.unknown", cannot_tell=CANNOT_TELL, why=why, assumed=assumed)


def only_prefix_cache_differs(a: SimulatedScenario, b: SimulatedScenario) -> bool:
    """Return whether all that differs is a prefix cache that can hit in neither."""
    before, after = a.scenario.policies.as_dict(), b.scenario.policies.as_dict()
    differing = {name for name in before if before[name] != after[name]}
    if not differing or not differing <= _SETTINGS:
        return False
    files = [one.file.model_copy(update=_NO_SETTINGS) for one in (a, b)]
    places = [(one.digest, one.scenario.cluster, one.scenario.eager_preset) for one in (a, b)]
    return (files[0], places[0]) == (files[1], places[1]) and why_no_hits(a.trace) is not None
