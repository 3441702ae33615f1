"""What lies in the memory of the devices: weights, keys and values, states."""

from dataclasses import dataclass

from sim.shapes.model import ModelShape
from sim.step_times.roofline.deployment import Deployment
from sim.step_times.roofline.operators import STATE_BYTES


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes over all devices of a replica.

    ``usable`` is the share of ``capacity`` that weights and KV may take; activations and buffers
    have the rest. ``kv_per_sequence`` and ``state_per_sequence`` are of one context length.
    """

    capacity: float
    usable: float
    weights: float
    kv_per_sequence: float
    state_per_sequence: float

    @classmethod
    def of(cls, deployment: Deployment, context_tokens: int) -> "DeviceMemory":
        """Return the memory at ``context_tokens`` per sequence; windows and budgets bound it."""
        model, capacity = deployment.model, deployment.hardware.memory_bytes
        capacity *= deployment.parallel.devices
        elements = model.kv_elements_per_token()
        element_bytes = deployment.kv_bytes_per_token() / elements if elements else 0.0
        kept = model.resident_kv_elements(context_tokens) - model.state_elements()
        usable, weights = capacity * deployment.memory_share, deployment.resident_weight_bytes()
        state = model.state_elements() * STATE_BYTES
        return cls(capacity, usable, weights, kept * element_bytes, state)

    @property
    def sequences(self) -> int:
        """Return how many sequences fit beside the weights; 0 where the weights alone do not."""
        room = self.usable - self.weights
        return max(0, int(room // (self.kv_per_sequence + self.state_per_sequence)))

    def parts(self, sequences: int) -> dict[str, float]:
        """Return the bytes of each part with so many sequences; ``free`` may still be used."""
        kv, state = sequences * self.kv_per_sequence, sequences * self.state_per_sequence
        taken = self.weights + kv + state
        return {
            "weights": self.weights,
            "KV": kv,
            "state": state,
            "free": max(0.0, self.usable - taken),
            "kept back": self.capacity - self.usable,
        }


@dataclass(frozen=True, slots=True)
class MemorySizes:
    """Bytes of a model; ``sequence_bytes`` are those of one sequence of the given context."""

    model: str
    params: float
    weight_bytes: float
    kv_bytes_per_token: float
    state_bytes: float
    sequence_bytes: float

    def sequences_in(self, memory_bytes: float) -> int:
        """Return how many sequences fit beside the weights; 0 where the weights alone do not."""
        return max(0, int((memory_bytes - self.weight_bytes) // self.sequence_bytes))


def memory_sizes(
    model: ModelShape,
    context_tokens: int,
    bytes_per_weight: float = 2.0,
    kv_element_bytes: float = 2.0,
) -> MemorySizes:
    """Return the sizes at these bytes per number; attention keeps 2 L k e c per token."""
    state_bytes = model.state_elements() * STATE_BYTES
    kept = model.resident_kv_elements(context_tokens) - model.state_elements()
    params, per_token = model.params(), model.kv_elements_per_token() * kv_element_bytes
    weights, sequence = params * bytes_per_weight, kept * kv_element_bytes + state_bytes
    return MemorySizes(model.name, params, weights, per_token, state_bytes, sequence)
