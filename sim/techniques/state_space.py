"""State-space models: a constant state instead of keys and values."""

from math import ceil

from sim.shapes.mixers import Recurrence
from sim.shapes.part import Count
from sim.techniques.mixer_change import OneIn, change_attention
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique

_CONVOLVED_TOKENS = 4


class StateSpace(Technique):
    """Mamba mixers of inner width E = ``expand`` d with ``state_dim`` N numbers per channel.

    They take the attention's place, the FFN stays; ``attention_every``: one layer in so many
    keeps its attention (Jamba). A weak associative recall is the price.
    """

    name = "state-space"
    family = "attention"
    kind = "algorithm"
    lossless = False
    formula = "E N elements per layer and sequence, whatever its length"
    source = "Mamba (Gu 2023), section 3.4; Jamba (2024) for hybrids"

    state_dim: Count = 16
    expand: Count = 2
    attention_every: OneIn = None

    def apply(self, setup: Setup) -> Setup:
        """With states; refused where too few layers are there for one to stay."""
        mixer = self._mixer(setup.deployment.model.width)
        return change_attention(self, setup, lambda _: mixer, self.attention_every)

    def _mixer(self, width: int) -> Recurrence:
        """Projections in (twice) and out, those of step, B and C, the convolution, A and D."""
        inner, step_rank = self.expand * width, ceil(width / 16)
        selective = inner * (step_rank + 2 * self.state_dim) + step_rank * inner
        own = inner * (_CONVOLVED_TOKENS + self.state_dim + 1)
        return Recurrence(
            state_size=inner * self.state_dim, mixer_params=3 * width * inner + selective + own
        )
