"""What is simulated, in one line: nothing in it is left to the server."""

from collections import Counter

from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.origin_line import in_colour
from servetwin.app.dashboard.scenario.uploads import whole_trace
from servetwin.app.dashboard.simulations import SimulatedScenario
from servetwin.policies.config import PolicyConfig
from servetwin.sim.step_times.profile import Profile
from servetwin.sim.step_times.roofline.server import NEVER_FULL_TOKENS, RooflineServer
from servetwin.sim.step_times.server_model import ServerModel

_WITHOUT_BUDGET = ("static", "insertion")


def simulated_line(outcome: SimulatedScenario) -> str:
    """Return model, devices, origin of the step times, policies as resolved, and requests."""
    policies = outcome.scenario.policies
    origins = " and ".join(map(in_colour, dict.fromkeys(outcome.scenario.origins)))
    parts = [_batching(policies), _memory(policies), _requests(outcome)]
    return " · ".join([*_servers(outcome), f"step times {origins}", *parts])


def model_on_device(server: ServerModel) -> tuple[str, str, int]:
    """Return the model of a server, its device, and how many of these it has."""
    if isinstance(server, RooflineServer):
        deployment = server.deployment
        return deployment.model.name, deployment.hardware.name, deployment.parallel.devices
    if isinstance(server, Profile):
        machine = server.machine
        device = server.engine.get("device") or machine.get("processor") or machine.get("endpoint")
        return str(server.engine.get("model", server.name)), str(device or "unknown device"), 1
    return server.name, "unknown device", 1


def _servers(outcome: SimulatedScenario) -> list[str]:
    counted = Counter(map(model_on_device, outcome.scenario.servers()))
    return [
        f"**{escaped(model)}** on {count * devices} × {escaped(device)}{_replicas(count, devices)}"
        for (model, device, devices), count in counted.items()
    ]


def _replicas(count: int, devices: int) -> str:
    if count == 1:
        return ""
    return f" ({count} replicas{f' of {devices}' if devices > 1 else ''})"


def _batching(policies: PolicyConfig) -> str:
    said = f"{escaped(policies.batching)} batching, up to {policies.max_seqs:,} sequences"
    if policies.batching in _WITHOUT_BUDGET:
        return said
    return f"{said} and {policies.token_budget:,} tokens a step"


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
