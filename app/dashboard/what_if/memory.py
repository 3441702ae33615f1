"""What a replica's memory holds on average over time: bytes where a data sheet says how many there
are, else tokens of KV memory."""

from collections.abc import Mapping

from app.dashboard.simulations import SimulatedScenario, steps_with_usage
from app.figures import mean_kv_parts
from sim.step_times.roofline.server import RooflineServer

GB = 1e9


def memory_parts(outcome: SimulatedScenario) -> tuple[dict[str, float], str]:
    """Amounts by part (``app.figures.memory_bar``) of one replica, and their unit."""
    tokens = mean_kv_parts(steps_with_usage(outcome))
    server = outcome.scenario.profile
    if not isinstance(server, RooflineServer):
        return tokens, "tokens"
    weights = server.deployment.resident_weight_bytes()
    gb = {part: count * server.kv_bytes_per_token() / GB for part, count in tokens.items()}
    return {"weights": weights / GB, **gb}, "GB"


def bars_of_one_unit(
    found: Mapping[str, tuple[dict[str, float], str]],
) -> list[tuple[str, dict[str, dict[str, float]]]]:
    """The bars grouped by unit: a bar of bytes does not stand beside one of tokens."""
    units = dict.fromkeys(unit for _, unit in found.values())
    return [
        (unit, {name: parts for name, (parts, of) in found.items() if of == unit}) for unit in units
    ]
