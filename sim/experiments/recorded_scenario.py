"""The scenario of a simulated run, built again from its ``scenario.yaml``."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from servetwin.policies.config import PolicyConfig
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.records.run import RunError
from servetwin.sim.step_times.server_model import load_server
from servetwin.sim.techniques.registry import Toggles, build_setup, parse_efficiency
from servetwin.sim.techniques.setup import with_eager_kernels


def recorded_scenario(record: Mapping[str, Any]) -> Scenario:
    """Return the scenario that ``record``, the content of ``scenario.yaml``, describes.

    Raises ``RunError`` for a run on tables or of a named server, or one of another version,
    ``ServetwinError`` where a profile, model or policy does not exist any more.
    """
    if record.get("times", "sheet") != "sheet" or record.get("server") or record.get("link"):
        raise RunError("the prediction rests on more than a data sheet: run its command again")
    try:
        policies = PolicyConfig(**record["policies"])
        cluster = ClusterConfig(**record.get("cluster", {}))
        return replace(_servers(record), policies=policies, cluster=cluster)
    except KeyError as error:
        raise RunError(f"scenario.yaml of the prediction has no {error}") from error
    except TypeError as error:
        raise RunError(f"scenario.yaml of the prediction cannot be used again ({error})") from error


def _servers(record: Mapping[str, Any]) -> Scenario:
    """Return the recorded servers with the policies that they bring."""
    if names := record.get("profile"):
        first, *more = map(load_server, [names] if isinstance(names, str) else names)
        return Scenario(first.policy_config(), first, more_profiles=tuple(more))
    efficiency = parse_efficiency(record.get("efficiency") or "")
    setup = build_setup(record["model"], record["gpu"], efficiency=efficiency)
    if layout := record.get("layout"):
        setup = setup.with_layout(Layout.parse(layout))
    eager = record.get("eager_preset")
    if eager:
        setup = with_eager_kernels(setup)
    toggles = Toggles.of(record.get("techniques") or (), record.get("without") or ())
    return replace(toggles.over(setup).scenario(), eager_preset=eager)
