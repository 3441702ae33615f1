"""Paddle's dynamic insertion: the slot of an ended answer takes in the next request."""

from sim.shapes.part import Count
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class DynamicInsertion(Technique):
    """``slots`` on both sides; off, a slot is idle from its answer's end to that of the longest.

    So the gain in throughput is at most E[max of b m] / E[m] for lengths m and b slots.
    """

    name = "dynamic-insertion"
    family = "serving"
    kind = "system"
    lossless = True
    formula = "gain <= E[max of b m] / E[m] = 1 / static efficiency"
    source = "PaddlePaddle deployment talk; FasterTransformer's interactive mode"

    slots: Count = 8

    def apply(self, setup: Setup) -> Setup:
        """Slots that are refilled one by one."""
        return setup.with_policies(batching="insertion", max_seqs=self.slots)

    def off(self, setup: Setup) -> Setup:
        """Slots that are refilled all at once."""
        return setup.with_policies(batching="static", max_seqs=self.slots)
