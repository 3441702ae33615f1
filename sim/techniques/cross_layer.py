"""Cross-layer attention: neighbouring layers use the keys and values of one of them."""

from sim.shapes.mixers import Attention
from sim.shapes.part import Count
from sim.techniques.mixer_change import change_attention
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError


class CrossLayer(Technique):
    """``layers`` layers keep one K and V between them; the model is trained so.

    Less is kept, but every layer still reads it: a decode step is not shorter at equal batch.
    """

    name = "cross-layer"
    family = "attention"
    kind = "algorithm"
    lossless = False
    formula = "2 L k e / s elements of KV per token, of which every layer reads 2 k e"
    source = "CLA (Brandon 2024)"

    layers: Count = 2

    def apply(self, setup: Setup) -> Setup:
        """Shared; refused where the layers cannot be divided so."""
        model = setup.deployment.model
        for group in model.layers:
            if isinstance(group.mixer, Attention) and group.count % self.layers:
                raise PolicyError(
                    f"{self.name}: {group.count} equal layers of {model.name} cannot share keys "
                    f"and values by {self.layers}; layers must divide {group.count}"
                )
        return change_attention(self, setup, self._shared)

    def _shared(self, attention: Attention) -> Attention:
        return attention.model_copy(update={"kv_sharing": self.layers})
