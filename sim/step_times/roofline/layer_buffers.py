"""Which buffers of a layer live at the same time, in elements per row.

Fused kernels reuse buffers: beside the residual, only an operator's input and output live. Where
nothing is reused, these are the tensors that have a name in a layer of the bundled engine.
"""

from dataclasses import dataclass

from servetwin.sim.catalogue.feed_forward import Dense, FeedForward
from servetwin.sim.catalogue.mixers import Attention, LatentAttention, Mixer
from servetwin.sim.catalogue.model import LayerGroup

Buffers = tuple[float, ...]
"""Elements per row of each buffer that lives."""


@dataclass(frozen=True, slots=True)
class LayerBuffers:
    """``stages`` between attention and the next layer, and those while ``attention`` runs."""

    stages: tuple[Buffers, ...]
    attention: Buffers

    @classmethod
    def of(cls, group: LayerGroup, width: int, ranks: int, fused: bool) -> "LayerBuffers":
        """Return the buffers of a layer of ``group`` on one of ``ranks`` devices that share it."""
        projected, rotated, mixed = (part / ranks for part in _mixer_elements(group.mixer, width))
        inner, active, routed = _ffn_elements(group.ffn, width)
        inner, active = inner / ranks, active / ranks
        if not fused:
            before = (width, width)  # the residual, and what the last layer adds to it
            attention = (*before, width, width, projected, rotated, mixed)  # their sum, its norm
            down = (*before, width, width, width, inner, active, width, routed)
            return cls((down,), attention)
        pairs = ((width, projected), (mixed, width), (width, inner), (inner, active))
        stages = tuple((width, routed, *pair) for pair in (*pairs, (active, width)))
        return cls(stages, (width, projected, mixed))


def _mixer_elements(mixer: Mixer, width: int) -> tuple[float, float, float]:
    """Return what the projections of attention, its rotation and attention itself write."""
    if isinstance(mixer, Attention):
        queries, keys = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
        return queries + 2 * keys, queries + keys, queries
    if isinstance(mixer, LatentAttention):
        per_head = 2 * (mixer.nope_dim + mixer.rope_dim) + mixer.value_dim
        projected = mixer.heads * per_head + mixer.latent_dim + mixer.rope_dim
        return projected, mixer.heads * mixer.rope_dim, mixer.heads * mixer.value_dim
    return mixer.params(width) / width, 0, width  # a column of each weight makes an element


def _ffn_elements(ffn: FeedForward, width: int) -> tuple[float, float, float]:
    """Return what the first products write, what the activation does, and copies for experts."""
    if isinstance(ffn, Dense):
        return max(0, ffn.matrices - 1) * ffn.width, ffn.width * bool(ffn.matrices), 0
    active = ffn.top_k * ffn.width + ffn.shared_width
    return (ffn.matrices - 1) * active, active, ffn.top_k * width
