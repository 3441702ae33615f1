"""Weights in host memory, streamed to the device in every step."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sim.shapes.part import Positive, Share
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class WeightOffload(Technique):
    """``resident_share`` of the weights, or ``resident_gb`` of them, stay on the device.

    The others come over the host link, of ``gb_per_s`` or the device's own, in every step; with
    ``prefetch`` while it computes. Every step streams all of them, experts that nobody uses too.
    """

    name = "weight-offload"
    family = "memory"
    kind = "system"
    lossless = True
    formula = "t = max(compute, (W - resident) / link), the sum without prefetch"
    source = "FlexGen (Sheng 2023)"

    resident_share: Share = 0.0
    resident_gb: Annotated[float | None, Field(ge=0)] = None
    gb_per_s: Positive | None = None
    prefetch: bool = True

    def apply(self, setup: Setup) -> Setup:
        """With the rest beside the device."""
        deployment = setup.deployment
        share, own = self.resident_share, deployment.offload.bytes_per_s
        if self.resident_gb is not None:
            share = min(1.0, self.resident_gb * 1e9 / deployment.weight_bytes())
        offload = replace(
            deployment.offload,
            resident_weights=share,
            bytes_per_s=own if self.gb_per_s is None else self.gb_per_s * 1e9,
            prefetch=self.prefetch,
        )
        return setup.with_deployment(offload=offload)
