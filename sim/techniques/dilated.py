"""Dilated attention: a token sees every so many-th token before it."""

from sim.shapes.mixers import Attention
from sim.shapes.part import Count
from sim.techniques.experiment import LONG_PROMPTS
from sim.techniques.mixer_change import change_attention
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class Dilated(Technique):
    """Every ``dilation``-th of the last ``window_tokens`` (of all, where it is None) is read.

    All of them stay in memory: what one token skips, the next one sees.
    """

    name = "dilated"
    family = "attention"
    kind = "algorithm"
    lossless = False
    formula = "ceil(min(l, W) / s) tokens read, min(l, W) kept"
    source = "Longformer (Beltagy 2020), section 3.1"
    experiment = LONG_PROMPTS

    dilation: Count = 2
    window_tokens: Count | None = None

    def apply(self, setup: Setup) -> Setup:
        """With gaps."""
        return change_attention(self, setup, self._dilated)

    def _dilated(self, attention: Attention) -> Attention:
        new = {"dilation": self.dilation, "window_tokens": self.window_tokens}
        return attention.model_copy(update=new)
