"""What a model keeps in memory: its weights, its KV per token, its state per sequence."""

from dataclasses import dataclass

from sim.shapes.model import ModelShape
from sim.step_times.roofline.operators import STATE_BYTES


@dataclass(frozen=True, slots=True)
class MemorySizes:
    """Bytes of a model; ``sequence_bytes`` are those of one sequence of the context asked for."""

    model: str
    params: float
    weight_bytes: float
    kv_bytes_per_token: float
    state_bytes: float
    sequence_bytes: float

    def sequences_in(self, memory_bytes: float) -> int:
        """Sequences that fit beside the weights; 0 where the weights alone do not."""
        return max(0, int((memory_bytes - self.weight_bytes) // self.sequence_bytes))


def memory_sizes(
    model: ModelShape,
    context_tokens: int,
    bytes_per_weight: float = 2.0,
    kv_element_bytes: float = 2.0,
) -> MemorySizes:
    """Sizes at these bytes per number; KV per token is 2 L k e c for attention with k KV heads."""
    state_bytes = model.state_elements() * STATE_BYTES
    kept = model.resident_kv_elements(context_tokens) - model.state_elements()
    return MemorySizes(
        model.name,
        model.params(),
        model.params() * bytes_per_weight,
        model.kv_elements_per_token() * kv_element_bytes,
        state_bytes,
        kept * kv_element_bytes + state_bytes,
    )
