"""The candidates of the page How many: policies times servers."""

from collections.abc import Sequence
from dataclasses import dataclass

from servetwin.app.dashboard.compare.policy_comparison import OWN_LABEL, scenario_under
from servetwin.app.dashboard.jobs.scenario_grid import with_values
from servetwin.app.dashboard.scenario.allowed_choices import offered, require_all_offered
from servetwin.app.scenario.files.scenario_file import ScenarioError, ScenarioFile, Server
from servetwin.workloads.errors import ServetwinError

OWN_SERVER = "this server"
MOST_CANDIDATES = 12
EXAMPLE_TIMES = 14
"""How many times the rate of the default scenario the example has: one server is not enough."""
_ON = " on "


@dataclass(frozen=True, slots=True)
class Candidate:
    """A scenario whose number is looked for."""

    label: str
    file: ScenarioFile


def is_example(base: ScenarioFile, rate_per_s: float | None) -> bool:
    """Return whether the question is still the default one: the page then shows an example."""
    return rate_per_s is None and base == ScenarioFile()


def at_load(base: ScenarioFile, rate_per_s: float | None) -> ScenarioFile:
    """Return the scenario at a rate; without one at its own, or that of the example."""
    if is_example(base, rate_per_s):
        rate_per_s = EXAMPLE_TIMES * (base.workload.rate_per_s or 1.0)
    return base if rate_per_s is None else with_values(base, {"rate": rate_per_s})


def server_names(base: ScenarioFile) -> list[str]:
    """Return the servers to choose from: profiles, and the scenario's model on devices."""
    devices = offered()["hardware"] if base.server.model else []
    named = [f"{base.server.model}{_ON}{name}" for name in devices]
    return [OWN_SERVER, *named, *offered()["profile"]]


def candidates(
    base: ScenarioFile, policies: Sequence[str], servers: Sequence[str]
) -> list[Candidate]:
    """Return each policy on each server, in the order of the choices.

    Raises ``ServetwinError`` naming what is unknown, and ``ScenarioError`` for none or too many.
    """
    policies, servers = policies or [OWN_LABEL], servers or [OWN_SERVER]
    if len(policies) * len(servers) > MOST_CANDIDATES:
        raise ScenarioError(
            f"{len(policies)} policies on {len(servers)} servers: at most {MOST_CANDIDATES} "
            "candidates here, and any number with servetwin capacity --vary"
        )
    found = []
    for server in servers:
        on_server = _on(base, server)
        for policy in policies:
            names = ([server] if len(servers) > 1 else []) + ([policy] if len(policies) > 1 else [])
            label = ", ".join(names) or (policy if policy != OWN_LABEL else server)
            found.append(Candidate(label, _under(on_server, policy)))
    return found


def _under(base: ScenarioFile, policy: str) -> ScenarioFile:
    try:
        return scenario_under(base, policy)
    except ServetwinError as error:
        raise ScenarioError(str(error).removeprefix("replay compare: ")) from None


def _on(base: ScenarioFile, server: str) -> ScenarioFile:
    if server == OWN_SERVER:
        return base
    model, on, hardware = server.rpartition(_ON)
    changed = Server(profile=server)
    if on and model == base.server.model:
        changed = base.server.model_copy(update={"hardware": hardware})
    found = base.model_copy(update={"server": changed})
    require_all_offered(found)
    return found
