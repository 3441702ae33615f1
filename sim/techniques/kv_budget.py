"""A budget of keys and values: what matters least is dropped once a prompt has been computed."""

from sim.shapes.mixers import Attention
from sim.shapes.part import Count
from sim.techniques.experiment import LONG_PROMPTS
from sim.techniques.mixer_change import change_attention
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class KVBudget(Technique):
    """The last ``recent_tokens`` and the ``heavy_tokens`` that were attended to most.

    The prompt itself is attended to in full. Choosing is free here.
    """

    name = "kv-budget"
    family = "attention"
    kind = "algorithm"
    lossless = False
    formula = "min(l, recent + heavy) tokens kept and read by decodes"
    source = "H2O (Zhang 2023)"
    experiment = LONG_PROMPTS

    recent_tokens: Count = 512
    heavy_tokens: Count = 512

    def apply(self, setup: Setup) -> Setup:
        """With a budget in every layer."""
        return change_attention(self, setup, self._budgeted)

    def _budgeted(self, attention: Attention) -> Attention:
        budget = self.recent_tokens + self.heavy_tokens
        return attention.model_copy(update={"budget_tokens": budget})
