"""FlashAttention: a running softmax, so that scores never leave the chip."""

from dataclasses import replace

from sim.techniques.requirements import require_softmax
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class FlashAttention(Technique):
    """Attention to a prompt in tiles; without, all scores go out and in twice."""

    name = "flash-attention"
    family = "kernels"
    kind = "system"
    lossless = True
    formula = "traffic n^2 d^2 / M instead of n d + n^2; memory 2 n instead of n^2 a head"
    source = "FlashAttention (Dao 2022)"

    def apply(self, setup: Setup) -> Setup:
        """Scores stay on the chip; refused for a model without softmax attention."""
        return self._with(setup, True)

    def off(self, setup: Setup) -> Setup:
        """Scores travel through memory."""
        return self._with(setup, False)

    def _with(self, setup: Setup, flash: bool) -> Setup:
        require_softmax(self, setup.deployment.model)
        kernels = replace(setup.deployment.kernels, flash_attention=flash)
        return setup.with_deployment(kernels=kernels)


def score_elements(tokens: int, flash: bool) -> int:
    """Elements in memory per head: all scores, or a running maximum and sum per query."""
    return 2 * tokens if flash else tokens**2


def standard_traffic_elements(tokens: int, head_dim: int) -> int:
    """Order of what a head moves with scores in memory: n d + n^2 (Dao 2022, theorem 2)."""
    return tokens * head_dim + tokens**2


def flash_traffic_elements(tokens: int, head_dim: int, sram_elements: int) -> float:
    """Order of what a head moves with tiles in ``sram_elements``: n^2 d^2 / M (theorem 2)."""
    return tokens**2 * head_dim**2 / sram_elements
