"""The devices of the servers of a scenario: what is bought or rented."""

from collections import Counter
from collections.abc import Mapping
from functools import cache

from servetwin.sim.catalogue.catalogue import shipped_hardware
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.step_times.profile import Profile
from servetwin.sim.step_times.roofline.server import RooflineServer
from servetwin.sim.step_times.server_model import ServerModel
from servetwin.sim.step_times.tables import TableProfile

UNKNOWN = "server"
"""The device of a server that does not say what it runs on."""


def devices(scenario: Scenario) -> Mapping[str, int]:
    """Return how many devices all servers of a scenario have, by name."""
    found = Counter[str]()
    for server in scenario.servers():
        name, count = devices_of(server)
        found[name] += count
    return dict(found)


def devices_of(server: ServerModel) -> tuple[str, int]:
    """Return the name of a server's device, and how many it has: more than 1 where it is split.

    The name is that of the catalogue where it is known there. A profile is of one device unless its
    facts of the engine have ``devices``.
    """
    if isinstance(server, RooflineServer):
        deployment = server.deployment
        return deployment.hardware.name, deployment.parallel.devices
    if isinstance(server, TableProfile):
        return server.device or UNKNOWN, server.devices
    if isinstance(server, Profile):
        said = server.engine.get("device") or server.machine.get("processor") or ""
        return _known(str(said)) or UNKNOWN, int(server.engine.get("devices", 1))
    return UNKNOWN, 1


@cache
def _known(said: str) -> str:
    """Return the longest name of the catalogue whose parts are all in a text, else the text."""
    squeezed = "".join(said.lower().split())
    fitting = [n for n in shipped_hardware() if all(part in squeezed for part in n.split("-"))]
    return max(fitting, key=len, default=said.partition(",")[0])
