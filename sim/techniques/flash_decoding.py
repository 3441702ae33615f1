"""FlashDecoding: a decode's keys in pieces, because its one query cannot fill a device."""

from dataclasses import replace
from typing import Literal

from sim.shapes.part import Count
from sim.techniques.experiment import LONG_PROMPTS
from sim.techniques.requirements import require_softmax
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class FlashDecoding(Technique):
    """A thread block per sequence, KV head and ``split_tokens`` keys, and a reduction."""

    name = "flash-decoding"
    family = "kernels"
    kind = "system"
    lossless = True
    formula = "occupancy min(1, B k ceil(l / split) / SMs) instead of min(1, B k / SMs)"
    source = "Flash-Decoding (Dao 2023)"
    experiment = LONG_PROMPTS

    split_tokens: Count = 256

    def apply(self, setup: Setup) -> Setup:
        """Split; refused for a model without softmax attention."""
        return self._with(setup, "split")

    def off(self, setup: Setup) -> Setup:
        """One thread block per sequence and KV head."""
        return self._with(setup, "heads")

    def _with(self, setup: Setup, occupancy: Literal["heads", "split"]) -> Setup:
        require_softmax(self, setup.deployment.model)
        kernels = setup.deployment.kernels
        kernels = replace(kernels, occupancy=occupancy, split_tokens=self.split_tokens)
        return setup.with_deployment(kernels=kernels)


def most_gain(compute_units: int, sequences: int, kv_heads: int) -> float:
    """What splitting can gain at most: SMs / (B k), where that is more than one."""
    return max(1.0, compute_units / (sequences * kv_heads))
