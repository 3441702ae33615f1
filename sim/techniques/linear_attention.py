"""Linear attention: without a softmax, keys and values add up to one matrix per head."""

from sim.shapes.mixers import Attention, Recurrence
from sim.techniques.mixer_change import OneIn, change_attention
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class LinearAttention(Technique):
    """A sum of outer products, e x e for each of the h heads; RetNet lets it decay.

    ``attention_every``: one layer in so many keeps its softmax.
    """

    name = "linear-attention"
    family = "attention"
    kind = "algorithm"
    lossless = False
    formula = "h e^2 elements per layer and sequence, whatever its length"
    source = "Katharopoulos 2020; RetNet (Sun 2023)"

    attention_every: OneIn = None

    def apply(self, setup: Setup) -> Setup:
        """With states; refused where too few layers are there for one to stay."""
        width = setup.deployment.model.width

        def change(attention: Attention) -> Recurrence:
            heads, head_dim = attention.heads, attention.head_dim
            return Recurrence(
                state_size=heads * head_dim**2, mixer_params=4 * width * heads * head_dim
            )

        return change_attention(self, setup, change, self.attention_every)
