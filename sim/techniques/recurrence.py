"""Techniques that put a constant state in the place of keys and values.

Symbols in the formulas: d width, h heads, e head size, E inner width, N state per channel.
"""

from math import ceil
from typing import Literal

from servetwin.sim.catalogue.feed_forward import Dense
from servetwin.sim.catalogue.frozen_model import Count
from servetwin.sim.catalogue.mixers import Attention, Recurrence
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.sim.techniques.attention import AttentionChange, OneIn
from servetwin.sim.techniques.setup import Setup

_CONVOLVED_TOKENS = 4
_BLOCKS_PER_LAYER = 2


class StateSpace(AttentionChange):
    """Mamba blocks of inner width E = ``expand`` d with ``state_dim`` N numbers per channel.

    ``expand`` None: as wide as makes the model as large as it was. ``ffn=replaced``: two blocks
    take the place of an attention and its FFN, as in Mamba; ``kept``: one that of the attention, as
    in Jamba. ``attention_every``: one layer in so many stays as it is. A weak associative recall is
    the price.
    """

    name = "state-space"
    formula = "E N elements per block and sequence, whatever its length; weights as before"
    source = "Mamba (Gu 2023), section 3.4; Jamba (2024) for hybrids"
    keep = "attention_every"

    state_dim: Count = 16
    expand: Count | None = None
    ffn: Literal["replaced", "kept"] = "replaced"
    attention_every: OneIn = None

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with the blocks; raise where there is no attention to replace."""
        mixed = super().apply(setup)
        named = {"name": f"{setup.deployment.model.name} as Mamba blocks"}
        return mixed.with_deployment(model=mixed.deployment.model.model_copy(update=named))

    def change_layers(
        self, group: LayerGroup, count: int, attention: Attention, model: ModelShape
    ) -> LayerGroup:
        """Return the blocks in the place of ``count`` layers.

        Raises ``PolicyError`` where a mixture of experts would be replaced.
        """
        params = attention.params(model.width)
        if self.ffn == "kept":
            new = {"count": count, "mixer": self._block(params, model)}
            return group.model_copy(update=new)
        if not isinstance(group.ffn, Dense):
            raise self.refusal(
                f"ffn: blocks as large as the experts of {model.name} would compute all that these "
                "skip; set ffn=kept"
            )
        params = (params + group.ffn.params(model.width)) / _BLOCKS_PER_LAYER
        blocks = {"count": _BLOCKS_PER_LAYER * count, "mixer": self._block(params, model)}
        return group.model_copy(update={**blocks, "ffn": Dense(width=0, matrices=0)})

    def _block(self, params: float, model: ModelShape) -> Recurrence:
        """Return a block of about ``params`` weights, or of ``expand`` times the width.

        Its weights are those of two projections inwards and one outwards, of the step, B and C, the
        convolution, A and D: as many for each channel of the inner width.
        """
        step_rank = ceil(model.width / 16)
        selective = 2 * step_rank + 2 * self.state_dim
        per_channel = 3 * model.width + selective + _CONVOLVED_TOKENS + self.state_dim + 1
        inner = max(1, round(params / per_channel))
        if self.expand is not None:
            inner = self.expand * model.width
        return Recurrence(state_size=inner * self.state_dim, mixer_params=inner * per_channel)


class LinearAttention(AttentionChange):
    """Without a softmax, keys and values add up to one e x e matrix for each of the h heads.

    RetNet lets the sum decay. ``attention_every``: one layer in so many keeps its softmax.
    """

    name = "linear-attention"
    formula = "h e^2 elements per layer and sequence, whatever its length"
    source = "Katharopoulos 2020; RetNet (Sun 2023)"
    keep = "attention_every"

    attention_every: OneIn = None

    def change(self, attention: Attention, model: ModelShape) -> Recurrence:
        """Return the recurrent mixer with as many heads and four projections."""
        heads, head_dim = attention.heads, attention.head_dim
        params = 4 * model.width * heads * head_dim
        return Recurrence(state_size=heads * head_dim**2, mixer_params=params)
