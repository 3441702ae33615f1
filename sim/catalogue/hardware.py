"""The peaks of a device by its data sheet, and the link between devices."""

from dataclasses import dataclass
from math import ceil, log2
from typing import Annotated, Literal

from pydantic import Field

from servetwin.sim.catalogue.entry import Count, FrozenModel, Positive
from servetwin.sim.catalogue.quantisation import WeightFormat

# The number format that a matrix product computes in.
Precision = Literal["fp32", "bf16", "fp8", "int8", "int4", "fp4"]


class Hardware(FrozenModel):
    """The peaks of one device; ``sim.step_times.roofline.efficiency`` has the achieved shares.

    ``peak_flops_per_s`` dense, by precision of the product; ``memory_bytes_per_s`` and
    ``memory_bytes`` (10^9-based) of device memory, of which the driver reports ``reported_bytes``
    to a server (None: as many); ``compute_units`` are SMs, CUs or cores;
    ``tdp_watts`` is its thermal design power, None where nobody states it;
    ``link_bytes_per_s`` and ``link_latency_s`` join devices of one server (per direction),
    ``host_link_bytes_per_s`` device and host. ``weight_only`` formats that it has no products for
    are turned to bf16 inside the product, as vLLM's Marlin kernels do on NVIDIA's devices.
    """

    name: str
    aliases: tuple[str, ...] = ()
    peak_flops_per_s: Annotated[dict[Precision, Positive], Field(min_length=1)]
    memory_bytes_per_s: Positive
    memory_bytes: Positive
    reported_bytes: Positive | None = None
    compute_units: Count
    tdp_watts: Positive | None = None
    link_bytes_per_s: Positive
    link_latency_s: Annotated[float, Field(ge=0)] = 5e-6
    host_link_bytes_per_s: Positive
    kernel_launch_s: Annotated[float, Field(ge=0)] = 4e-6
    weight_only: tuple[WeightFormat, ...] = (
        "fp8", "fp8-block", "w4a16", "w4a16-g32", "nvfp4", "mxfp4",
    )  # fmt: skip
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


Algorithm = Literal["ring", "tree", "best"]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]


@dataclass(frozen=True, slots=True)
class Link:
    """A link between devices: the alpha-beta model (Hockney 1994; Thakur 2005).

    ``latency_s`` (alpha) per message, ``bytes_per_s`` (1/beta) per direction. What a subclass
    has measured of a collective counts instead (``measured_s``).
    """

    latency_s: float
    bytes_per_s: float

    def __str__(self) -> str:
        """Return its figures."""
        return f"link: {self.bytes_per_s / 1e9:.3g} GB/s, {self.latency_s * 1e6:.3g} us"

    def measured_s(
        self, collective: Collective, size_bytes: float, ranks: int, model_s: float
    ) -> float:
        """Return the seconds of a collective, which the model says take ``model_s``."""
        return model_s

    def send_s(self, size_bytes: float) -> float:
        """Return the seconds of one message."""
        model_s = self.latency_s + size_bytes / self.bytes_per_s
        return self.measured_s("send", size_bytes, 2, model_s)

    def all_reduce_s(self, size_bytes: float, ranks: int, algorithm: Algorithm = "best") -> float:
        """Sum ``size_bytes`` over ``ranks``.

        Ring: 2 (P - 1) alpha + 2 (P - 1) / P M beta; tree (recursive doubling): log2 P (alpha +
        M beta); "best" is the quicker one, as libraries choose by size.
        """
        if ranks <= 1:
            return 0.0
        wire_s = size_bytes / self.bytes_per_s
        ring = 2 * (ranks - 1) * self.latency_s + 2 * (ranks - 1) / ranks * wire_s
        tree = ceil(log2(ranks)) * (self.latency_s + wire_s)
        model_s = {"ring": ring, "tree": tree, "best": min(ring, tree)}[algorithm]
        return self.measured_s("all_reduce", size_bytes, ranks, model_s)

    def all_to_all_s(self, size_bytes: float, ranks: int) -> float:
        """Return the seconds in which every rank sends each other one its share of ``size_bytes``.

        Pairwise exchange: (P - 1) (alpha + M / P beta).
        """
        return self.measured_s("all_to_all", size_bytes, ranks, self._around_s(size_bytes, ranks))

    def all_gather_s(self, size_bytes: float, ranks: int) -> float:
        """Return the seconds until every rank has ``size_bytes``, of which each has a share.

        Ring: (P - 1) (alpha + M / P beta).
        """
        return self.measured_s("all_gather", size_bytes, ranks, self._around_s(size_bytes, ranks))

    def reduce_scatter_s(self, size_bytes: float, ranks: int) -> float:
        """Return the seconds until every rank has its share of the sum; as an all-gather."""
        model_s = self.all_gather_s(size_bytes, ranks)
        return self.measured_s("reduce_scatter", size_bytes, ranks, model_s)

    def _around_s(self, size_bytes: float, ranks: int) -> float:
        """Return the seconds of a message of a share to each of the other ranks."""
        return (ranks - 1) * self.send_s(size_bytes / ranks)

    def slowed(self, factor: float) -> "Link":
        """Return the link at ``1 / factor`` of its bandwidth."""
        return Link(self.latency_s, self.bytes_per_s / factor)
