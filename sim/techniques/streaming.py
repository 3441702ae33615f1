"""StreamingLLM: a window, and the first tokens, which take the attention that nobody needs."""

from sim.shapes.mixers import Attention
from sim.shapes.part import Count
from sim.techniques.experiment import LONG_PROMPTS
from sim.techniques.mixer_change import change_attention
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class Streaming(Technique):
    """``sink_tokens`` first ones and the last ``window_tokens``; no training is needed."""

    name = "streaming"
    family = "attention"
    kind = "algorithm"
    lossless = False
    formula = "min(l, sinks + W) tokens kept and read"
    source = "StreamingLLM (Xiao 2023)"
    experiment = LONG_PROMPTS

    sink_tokens: Count = 4
    window_tokens: Count = 1024

    def apply(self, setup: Setup) -> Setup:
        """With sinks and a window in every layer."""
        return change_attention(self, setup, self._streaming)

    def _streaming(self, attention: Attention) -> Attention:
        new = {"sink_tokens": self.sink_tokens, "window_tokens": self.window_tokens}
        return attention.model_copy(update=new)
