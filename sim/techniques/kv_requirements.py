"""What a technique of serving demands of the memory for keys and values."""

from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError


def require_whole_contexts(technique: Technique, setup: Setup) -> None:
    """Refuse a server that does not keep every token of every layer (``PolicyError``)."""
    deployment = setup.deployment
    if not deployment.kv_cache:
        raise PolicyError(
            f"{technique.name}: without a KV cache there are no keys and values to place"
        )
    for group in deployment.model.layers:
        if group.mixer.resident_limit() or group.mixer.state_elements():
            raise PolicyError(
                f"{technique.name}: {deployment.model.name} has layers that forget tokens or keep "
                "a state; such memory is counted, not mapped in blocks"
            )
