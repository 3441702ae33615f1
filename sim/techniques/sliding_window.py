"""Sliding windows: a token sees, and a layer keeps, the last tokens only."""

from sim.shapes.mixers import Attention
from sim.shapes.part import Count
from sim.techniques.experiment import LONG_PROMPTS
from sim.techniques.mixer_change import OneIn, change_attention
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class SlidingWindow(Technique):
    """``window_tokens`` in every layer, or in all but one in ``global_every`` (a hybrid)."""

    name = "sliding-window"
    family = "attention"
    kind = "algorithm"
    lossless = False
    formula = "min(l, W) tokens kept and read per layer; hybrid: 1 / g of l + (1 - 1 / g) of that"
    source = "Longformer (Beltagy 2020); Mistral 7B (2023); Gemma 2 (2024) for hybrids"
    experiment = LONG_PROMPTS

    window_tokens: Count = 1024
    global_every: OneIn = None

    def apply(self, setup: Setup) -> Setup:
        """With windows; refused where too few layers are there for one to be global."""
        return change_attention(self, setup, self._windowed, self.global_every)

    def _windowed(self, attention: Attention) -> Attention:
        return attention.model_copy(update={"window_tokens": self.window_tokens})
