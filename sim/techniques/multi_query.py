"""Multi-query attention: all query heads share one key and value head."""

from sim.techniques.grouped_query import with_kv_heads
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class MultiQuery(Technique):
    """Grouped-query attention with a single group; the model is trained anew, or on."""

    name = "multi-query"
    family = "attention"
    kind = "algorithm"
    lossless = False
    formula = "2 L e elements of KV per token: 1 / h of multi-head attention"
    source = "MQA (Shazeer 2019)"

    def apply(self, setup: Setup) -> Setup:
        """With one key and value head."""
        return with_kv_heads(self, setup, 1)
