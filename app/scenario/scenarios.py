"""From the options of a command to a scenario that can be simulated."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import typer

from app.scenario.cluster_options import ClusterOptions
from app.scenario.policy_options import PolicyOptions
from app.scenario.settings import NamedPolicies, parse_policies, with_settings
from policies.config import PolicyConfig
from policies.presets import find_preset
from sim.experiments.scenario import ClusterConfig, Scenario
from sim.step_times.profile import Profile
from sim.step_times.server_model import ServerModel
from workloads.errors import PolicyError
from workloads.trace import Trace


def build_scenario(
    trace: Trace,
    servers: Scenario,
    policy: PolicyOptions,
    cluster: ClusterOptions,
    compared: str | None = None,
) -> Scenario:
    """Return ``servers`` under the options; ``compared`` are policies of ``--compare``, which win.

    Only the cluster of a preset gives way to options: a preset sets policies, not sizes.
    """
    settings = policy.changes()
    around = servers.cluster.as_dict()
    around.update(find_preset(policy.preset).cluster if policy.preset else {})
    named = parse_policies(compared) if compared is not None else NamedPolicies({}, {}, {})
    settings.update(named.policies)
    around.update({**named.preset_cluster, **cluster.changes(), **named.cluster})
    config, note = fit_to_trace(with_settings(servers.policies, settings), trace, settings)
    if note:
        typer.echo(f"note: {note}", err=True)
    _warn_of_free_swaps(config, servers.servers())
    return replace(servers, policies=config, cluster=ClusterConfig(**around))


def fit_to_trace(
    config: PolicyConfig, trace: Trace, settings: Mapping[str, Any]
) -> tuple[PolicyConfig, str | None]:
    """Raise the model length to the longest request, unless ``settings`` fix it.

    Return the policies, and a note where it was raised.
    """
    longest = max((request.total_tokens for request in trace), default=0)
    if "max_model_len" in settings or longest <= config.max_model_len:
        return config, None
    grown = 1 << (longest - 1).bit_length()
    note = (
        f"the trace's longest request has {longest} tokens; model length raised from "
        f"{config.max_model_len} to {grown} (--max-model-len sets it)"
    )
    return replace(config, max_model_len=grown), note


def _warn_of_free_swaps(config: PolicyConfig, servers: list[ServerModel]) -> None:
    if config.preemption != "swap":
        return
    if not config.host_kv_tokens:
        raise PolicyError("preemption: 'swap' needs host memory; set host_kv_tokens")
    profiles = {server.name: server for server in servers if isinstance(server, Profile)}
    for profile in profiles.values():
        if not any("swapped_tokens" in fit.coefficients for fit in profile.layouts.values()):
            typer.echo(
                f"note: profile {profile.name} does not know the host link "
                "(coefficient 'swapped_tokens'); swapping takes no time",
                err=True,
            )


def scenario_record(
    trace: Trace, scenario: Scenario, servers: Mapping[str, object], seed: int
) -> dict[str, Any]:
    """Return what ``scenario.yaml`` needs to run it again; ``servers`` as the options name them."""
    return {
        "trace": trace.source,
        "notes": list(trace.notes),
        **servers,
        "policies": scenario.policies.as_dict(),
        "cluster": scenario.cluster.as_dict(),
        "seed": seed,
    }
