"""From the options of a command to a scenario that can be simulated."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions
from servetwin.app.scenario.servers import Servers
from servetwin.app.scenario.settings import (
    NO_POLICIES,
    NamedPolicies,
    parse_policies,
    with_settings,
)
from servetwin.app.words import print_notes
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import find_preset
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.step_times.profile import Profile
from servetwin.sim.step_times.server_model import ServerModel
from servetwin.sim.step_times.step_time import StepTime
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.generators.lora_mix import LORA_NOTE
from servetwin.workloads.trace import Trace

# Share of the prompts' tokens from which on it is said that no prefix cache is on.
REPEATS = 0.1


def build_scenario(
    trace: Trace,
    servers: Servers,
    policy: PolicyOptions,
    cluster: ClusterOptions,
    compared: str | None = None,
) -> Scenario:
    """Return ``servers`` under the options; ``compared`` are policies of ``replay compare``."""
    named = parse_policies(compared) if compared is not None else NO_POLICIES
    scenario, notes, fit = settled_scenario(trace, servers, policy, cluster, named)
    print_notes([*notes, fit, *idle_settings(scenario, trace)])
    _warn_of_a_free_link(scenario.policies, scenario.servers())
    return scenario


def settled_scenario(
    trace: Trace,
    servers: Servers,
    policy: PolicyOptions,
    cluster: ClusterOptions,
    named: NamedPolicies,
) -> tuple[Scenario, list[str], str | None]:
    """Return ``servers`` under the options, notes on its techniques, and one on its model length.

    ``named`` policies win. Only the cluster of a preset gives way to options: it sets policies, not
    sizes.
    """
    settings = {**policy.changes(), **named.policies}
    preset = {**preset_cluster(policy.preset), **named.preset_cluster}
    imitated = servers.imitating(policy.preset, *named.presets)
    settled = imitated.over(settings, {**preset, **cluster.changes(), **named.cluster})
    scenario, note = fitted(settled, trace, settings)
    return scenario, settled.notes(), note


def recorded_server(
    trace: Trace, servers: Deployment, policy: PolicyOptions, cluster: ClusterOptions
) -> Scenario:
    """Return the one server of a recorded run.

    Raises ``PolicyError`` where nothing says what served it.
    """
    if not servers.profile and servers.model is None:
        raise PolicyError(
            "--recorded: say what served the run: --profile P, or --model M with "
            "--times layers:DIR or --gpu G"
        )
    return build_scenario(trace, servers.servers(cluster.device_link()), policy, ClusterOptions())


def recorded_prior(
    trace: Trace, servers: Deployment, policy: PolicyOptions, cluster: ClusterOptions
) -> tuple[PolicyConfig, StepTime | None]:
    """Return the policies of a recorded server, and the step times that a fit may start from.

    These are of ``--model`` by its layer times or on ``--hardware``; None without them.
    """
    if servers.model is not None and (servers.gpu or servers.given):
        scenario = recorded_server(trace, servers, policy, cluster)
        layout = build_scheduler(scenario.policies).memory.layout
        return scenario.policies, scenario.profile.step_time(layout).model()
    from servetwin.sim.step_times.roofline.server import unlimited_policies

    changes = policy.changes()
    config, _ = fit_to_trace(with_settings(unlimited_policies(), changes), trace, changes)
    return config, None


def preset_cluster(preset: str | None) -> Mapping[str, Any]:
    """Return the cluster settings of a preset; none without one."""
    return find_preset(preset).cluster if preset else {}


def fitted(
    servers: Servers, trace: Trace, settings: Mapping[str, Any]
) -> tuple[Scenario, str | None]:
    """Return the scenario of servers under ``settings``, its model length that of ``fit_to_trace``.

    On data sheets, the KV memory is what steps of that length leave.
    """
    scenario = servers.scenario()
    config, note = fit_to_trace(scenario.policies, trace, settings)
    if note is None:
        return scenario, None
    length = config.max_model_len
    scenario = servers.over({"max_model_len": length}, {}).scenario()
    return replace(scenario, policies=replace(scenario.policies, max_model_len=length)), note


def fit_to_trace(
    config: PolicyConfig, trace: Trace, settings: Mapping[str, Any]
) -> tuple[PolicyConfig, str | None]:
    """Raise the model length to the longest request, unless ``settings`` fix it.

    Return the policies, and a note where it was raised.
    """
    longest = trace.longest_tokens
    if "max_model_len" in settings or longest <= config.max_model_len:
        return config, None
    grown = 1 << (longest - 1).bit_length()
    note = (
        f"the trace's longest request has {longest} tokens; model length raised from "
        f"{config.max_model_len} to {grown} (--max-model-len sets it)"
    )
    return replace(config, max_model_len=grown), note


def prefix_note(config: PolicyConfig, trace: Trace) -> str | None:
    """Return that a prefix cache cannot hit on a trace, or that the trace cannot tell, and why;
    None where it can or is off.
    """
    from servetwin.workloads.statistics.statistics import why_no_hits

    why = why_no_hits(trace) if config.prefix_cache else None
    if why is None:
        return None
    if trace.has_prefix_ids:
        return f"the prefix cache cannot hit on this trace: {why}"
    return (
        f"this trace cannot tell what the prefix cache does: {why}; in a scenario file, "
        "workload.prefix_share or workload.conversations assumes some"
    )


def repeats_note(config: PolicyConfig, trace: Trace, policy: PolicyOptions) -> str | None:
    """Return how much of the prompts a prefix cache could keep, where it is off by default; None
    for less than a tenth.
    """
    from servetwin.workloads.statistics.statistics import endless_hits

    chosen = policy.prefix_cache is not None or config.prefix_cache or config.kv != "paged"
    if chosen or not trace.has_prefix_ids:
        return None
    share = sum(endless_hits(trace)) / int(trace.column("prompt_tokens").sum())
    if share < REPEATS:
        return None
    return (
        f"the prompts repeat {share:.0%} of their tokens, which are computed anew: --prefix-cache "
        "keeps them, as vLLM does by default"
    )


def _warn_of_a_free_link(config: PolicyConfig, servers: list[ServerModel]) -> None:
    swaps = config.preemption == "swap"
    if swaps and not config.host_kv_tokens:
        raise PolicyError("preemption: 'swap' needs host memory; set host_kv_tokens")
    cached = config.host_cache_tokens or config.far_cache_tokens
    if not (swaps or cached or config.adapter_tokens):
        return
    profiles = {server.name: server for server in servers if isinstance(server, Profile)}
    for profile in profiles.values():
        if not any("swapped_tokens" in fit.coefficients for fit in profile.layouts.values()):
            unknown = f"profile {profile.name} does not know the host link (swapped_tokens)"
            print_notes([f"{unknown}; moving keys and values takes no time"])


def scenario_record(
    trace: Trace, scenario: Scenario, servers: Mapping[str, object], seed: int
) -> dict[str, Any]:
    """Return what ``scenario.yaml`` needs to run it again; ``servers`` as the options name them."""
    return {
        "trace": trace.source,
        "notes": list(trace.notes),
        **({"lanes": asdict(trace.lanes)} if trace.lanes else {}),
        **servers,
        "eager_preset": scenario.eager_preset,
        "policies": scenario.policies.as_dict(),
        "cluster": scenario.cluster.as_dict(),
        "seed": seed,
    }


def idle_settings(scenario: Scenario, trace: Trace) -> Iterator[str]:
    """Yield a note for each setting that changes nothing, or of which the trace cannot tell."""
    config, cluster = scenario.policies, scenario.cluster
    if note := prefix_note(config, trace):
        yield note
    asked = any(model is not None for model in trace.column("model").tolist())
    if config.adapter_slots and not asked:
        yield "adapter_slots: no request asks for an adapter; --lora-modules sql=0.3 makes some"
    if not config.adapter_slots and any(note.startswith(LORA_NOTE) for note in trace.notes):
        yield (
            "--lora-modules changes nothing: the server has no adapter_slots; --server 'vllm serve "
            "MODEL --enable-lora --max-loras 4' has some"
        )
    if cluster.router != ClusterConfig().router and len(scenario.replicas()) == 1:
        yield f"router {cluster.router} changes nothing: one server takes all; --replicas 2 has two"
    if cluster.splits and cluster.replicas > 1:
        yield (
            f"replicas {cluster.replicas} changes nothing: prompts and decodes have servers of "
            f"their own (prefill_replicas {cluster.prefill_replicas}, decode_replicas "
            f"{cluster.decode_replicas})"
        )
