"""Tensor parallelism: every product split over devices, two all-reduces a layer."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sim.roofline.links import Link
from sim.shapes.part import Count, Positive
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class TensorParallel(Technique):
    """``ways`` devices; the link is the device's own unless both of its figures are given."""

    name = "tensor-parallel"
    family = "parallel"
    kind = "system"
    lossless = True
    formula = "weights / P, heads / P; 2 all-reduces of T d bytes a layer"
    source = "Megatron-LM (Shoeybi 2019)"

    ways: Count = 2
    latency_us: Annotated[float | None, Field(ge=0)] = None
    gb_per_s: Positive | None = None

    def apply(self, setup: Setup) -> Setup:
        """Split; refused where it does not divide the heads."""
        deployment = setup.deployment
        parallel = replace(deployment.parallel, tensor=self.ways)
        own = deployment.link
        latency_s = own.latency_s if self.latency_us is None else self.latency_us / 1e6
        bytes_per_s = own.bytes_per_s if self.gb_per_s is None else self.gb_per_s * 1e9
        link = Link(latency_s, bytes_per_s)
        return setup.with_deployment(parallel=replace(parallel, link=link))
