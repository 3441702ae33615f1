"""The peaks of a device by its data sheet."""

from typing import Annotated, Literal

from pydantic import Field

from servetwin.sim.catalogue.frozen_model import Count, FrozenModel, Positive

Precision = Literal["fp32", "bf16", "fp8", "int8", "int4"]
"""The number format that a matrix product computes in."""


class Hardware(FrozenModel):
    """One device at its peaks; ``sim.step_times.roofline.efficiency`` has what is achieved of them.

    ``peak_flops_per_s`` dense, by precision of the product; ``memory_bytes_per_s`` and
    ``memory_bytes`` (10^9-based) of device memory; ``compute_units`` are SMs, CUs or cores;
    ``link_bytes_per_s`` and ``link_latency_s`` join devices of one server (per direction),
    ``host_link_bytes_per_s`` device and host.
    """

    name: str
    peak_flops_per_s: Annotated[dict[Precision, Positive], Field(min_length=1)]
    memory_bytes_per_s: Positive
    memory_bytes: Positive
    compute_units: Count
    link_bytes_per_s: Positive
    link_latency_s: Annotated[float, Field(ge=0)] = 5e-6
    host_link_bytes_per_s: Positive
    kernel_launch_s: Annotated[float, Field(ge=0)] = 4e-6
    source: str

    def peak(self, precision: Precision) -> float:
        """Return FLOP/s in a precision; without that precision, those of bf16, or else of fp32."""
        peaks = self.peak_flops_per_s
        for known in (precision, "bf16", "fp32"):
            if known in peaks:
                return peaks[known]
        return max(peaks.values())

    def ridge_flops_per_byte(self, precision: Precision = "bf16") -> float:
        """Return the intensity at which compute and memory take equally long (Williams 2009)."""
        return self.peak(precision) / self.memory_bytes_per_s
