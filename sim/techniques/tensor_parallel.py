"""Tensor parallelism: every product split over devices, two all-reduces a layer."""

from dataclasses import replace

from sim.shapes.part import Count
from sim.techniques.parallelism import Parallelism
from sim.techniques.setup import Setup


class TensorParallel(Parallelism):
    """``ways`` devices hold a slice of every weight and whole KV heads, or copies of one."""

    name = "tensor-parallel"
    formula = "weights / P, KV heads / P; 2 all-reduces of T d bytes a layer"
    source = "Megatron-LM (Shoeybi 2019)"

    ways: Count = 2

    def apply(self, setup: Setup) -> Setup:
        """Split; refused where it does not divide the heads."""
        return self._shared(setup, replace(setup.deployment.parallel, tensor=self.ways))
