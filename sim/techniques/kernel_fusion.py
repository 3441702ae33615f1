"""Kernel fusion: fewer launches, and what lies between two products stays on the chip."""

from dataclasses import replace

from sim.shapes.part import Count
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class KernelFusion(Technique):
    """``launches_per_layer`` kernels; without fusion twice as many, with their traffic between."""

    name = "kernel-fusion"
    family = "kernels"
    kind = "system"
    lossless = True
    formula = "saves L x launches x t_launch and about L T (10 d + 4 f) 2 bytes"
    source = "Megatron-LM, FasterTransformer (fused transformer layers); Pope 2022"

    launches_per_layer: Count = 8

    def apply(self, setup: Setup) -> Setup:
        """Fused."""
        return self._with(setup, True)

    def off(self, setup: Setup) -> Setup:
        """One kernel per operation."""
        return self._with(setup, False)

    def _with(self, setup: Setup, fused: bool) -> Setup:
        launches = self.launches_per_layer
        kernels = replace(setup.deployment.kernels, fused=fused, launches_per_layer=launches)
        return setup.with_deployment(kernels=kernels)
