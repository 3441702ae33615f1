"""A request as one context pass and its generation passes: FLOPs, traffic and ideal times."""

from dataclasses import dataclass

from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.roofline.operators import full_pairs

ELEMENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class Phases:
    """``batch`` requests of ``prompt_tokens`` and ``output_tokens``, at 2 bytes per number."""

    model: ModelShape
    batch: int
    prompt_tokens: int
    output_tokens: int

    @property
    def generation_passes(self) -> int:
        """Return the passes after the context pass, which makes the first token: one a token."""
        return self.output_tokens - 1

    @property
    def kv_entries(self) -> int:
        """Return the positions of a request in the KV cache at its end, without its last token."""
        return self.prompt_tokens + self.generation_passes

    @property
    def context_flops(self) -> float:
        """Return the FLOPs of products with weights, of all prompt tokens."""
        return self._flops(self.prompt_tokens)

    @property
    def generation_flops(self) -> float:
        """Return the FLOPs of products with weights, of all generation passes."""
        return self._flops(self.generation_passes)

    @property
    def context_attention_flops(self) -> float:
        """Return the FLOPs of causal attention within the prompts: n (n + 1) / 2 pairs each."""
        pairs = self.batch * full_pairs(0, self.prompt_tokens)
        return pairs * sum(g.count * g.mixer.flops_per_pair() for g in self.model.layers)

    @property
    def context_intensity(self) -> float:
        """Return FLOP per byte of weights in the context pass: B n at 2 bytes."""
        return self.context_flops / self._layer_bytes()

    @property
    def generation_intensity(self) -> float:
        """Return FLOP per byte of weights in a generation pass: B at 2 bytes."""
        return self._flops(1) / self._layer_bytes()

    def context_s(self, hardware: Hardware, devices: int, weight_bytes: float) -> float:
        """Return the ideal time of the context pass, its attention left out."""
        return ideal_s(self.context_flops, weight_bytes, hardware, devices)

    def generation_step_s(self, hardware: Hardware, devices: int, weight_bytes: float) -> float:
        """Return the ideal time of one generation pass, its attention left out."""
        return ideal_s(self._flops(1), weight_bytes, hardware, devices)

    def total_s(self, hardware: Hardware, devices: int, weight_bytes: float) -> float:
        """Return the ideal time of the whole requests."""
        step_s = self.generation_step_s(hardware, devices, weight_bytes)
        return self.context_s(hardware, devices, weight_bytes) + self.generation_passes * step_s

    def _flops(self, tokens: int) -> float:
        return 2 * self.model.active_linear_params() * tokens * self.batch

    def _layer_bytes(self) -> float:
        return ELEMENT_BYTES * self.model.linear_params()


def activation_bytes(model: ModelShape, tokens: int) -> int:
    """Return the bytes of one activation tensor between two layers: tokens x width."""
    return tokens * model.width * ELEMENT_BYTES


def ideal_s(flops: float, moved_bytes: float, hardware: Hardware, devices: int) -> float:
    """Return the seconds that ``devices`` take which share the work evenly and talk for free."""
    compute_s = flops / hardware.peak("bf16")
    return max(compute_s, moved_bytes / hardware.memory_bytes_per_s) / devices


def decode_traffic_ratio(model: ModelShape, batch: int, context_tokens: int) -> float:
    """Return the bytes of a decode step (layers and KV) over those of a step with one sequence."""
    weights, kept = model.linear_params(), model.resident_kv_elements(context_tokens)
    return (weights + batch * kept) / (weights + kept)


def batch_where_kv_outweighs_weights(model: ModelShape, context_tokens: int) -> float:
    """Return how many sequences have as much KV as the layers weigh: there, traffic has doubled."""
    return model.linear_params() / model.resident_kv_elements(context_tokens)
