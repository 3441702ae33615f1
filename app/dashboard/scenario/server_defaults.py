"""What a server has by itself: shown where a control leaves a setting to it."""

from functools import lru_cache

from app.scenario.scenario_file import ScenarioFile, Server
from policies.config import PolicyConfig
from sim.experiments.scenario import ClusterConfig
from workloads.errors import ServetwinError


def own_settings(scenario: ScenarioFile) -> tuple[PolicyConfig, ClusterConfig] | None:
    """Policies and cluster of its server under its preset; None where these cannot be."""
    return _own(scenario.server, scenario.preset)


@lru_cache(maxsize=64)
def _own(server: Server, preset: str | None) -> tuple[PolicyConfig, ClusterConfig] | None:
    try:
        found = ScenarioFile(server=server, preset=preset).settled()
    except ServetwinError:
        return None
    return found.policies, found.cluster
