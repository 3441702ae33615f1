"""Expert parallelism: devices with experts of their own, tokens travel to them and back."""

from dataclasses import replace

from sim.shapes.part import Count
from sim.techniques.parallelism import Parallelism
from sim.techniques.setup import Setup


class ExpertParallel(Parallelism):
    """``ways`` devices share the experts; each has all the other weights and its own sequences."""

    name = "expert-parallel"
    formula = "experts / P; 2 all-to-alls of T k d bytes / P a layer of experts"
    source = "GShard (Lepikhin 2020); DeepSpeed-MoE (Rajbhandari 2022)"

    ways: Count = 2

    def apply(self, setup: Setup) -> Setup:
        """Spread; refused where there are no experts, or they do not divide."""
        return self._shared(setup, replace(setup.deployment.parallel, expert=self.ways))
