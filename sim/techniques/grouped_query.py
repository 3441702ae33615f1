"""Grouped-query attention: several query heads share one key and value head."""

from sim.shapes.mixers import Attention
from sim.shapes.part import Count
from sim.techniques.mixer_change import change_attention
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError


class GroupedQuery(Technique):
    """``kv_heads`` k instead of as many as query heads h; the model is trained anew, or on."""

    name = "grouped-query"
    family = "attention"
    kind = "algorithm"
    lossless = False
    formula = "2 L k e elements of KV per token: k / h of multi-head attention"
    source = "GQA (Ainslie 2023)"

    kv_heads: Count = 8

    def apply(self, setup: Setup) -> Setup:
        """With so many; refused where they do not divide the heads, or are not fewer."""
        return with_kv_heads(self, setup, self.kv_heads)


def with_kv_heads(technique: Technique, setup: Setup, kv_heads: int) -> Setup:
    """``setup`` whose attention has so many key and value heads.

    Raises ``PolicyError`` where they do not divide the query heads, or the model has fewer.
    """

    def change(attention: Attention) -> Attention:
        if kv_heads > attention.kv_heads or attention.heads % kv_heads:
            raise PolicyError(
                f"{technique.name}: {kv_heads} kv_heads are not possible for "
                f"{setup.deployment.model.name}, which has {attention.heads} heads and "
                f"{attention.kv_heads} kv_heads; they must divide the former, and not exceed the "
                "latter"
            )
        return attention.model_copy(update={"kv_heads": kv_heads})

    return change_attention(technique, setup, change)
