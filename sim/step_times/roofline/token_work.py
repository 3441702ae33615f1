"""FLOPs of one token, and the elements it moves: every weight and every cached number once.

Activations and the head are left out. "MOPs" in the notes are these elements; bytes are elements
times the bytes of one.
"""

from dataclasses import dataclass

import numpy as np

from servetwin.sim.catalogue.mixers import Mixer
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.sim.step_times.roofline.matrix_products import KINDS, Kind
from servetwin.sim.step_times.roofline.operators import STATE_FLOPS, kv_sharing, visible


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs and elements moved."""

    flops: float = 0.0
    elements: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.elements + other.elements)

    def times(self, count: int) -> "Work":
        """Return the work ``count`` times."""
        return Work(self.flops * count, self.elements * count)


def token_work(model: ModelShape, context_tokens: int) -> dict[Kind, Work]:
    """Return the work of the token at position ``context_tokens``, all layers together.

    Projections 8 d^2 L / 4 d^2 L, attention 4 d l L / 2 d l L, FFN 2 m d f L / m d f L for h = k.
    A recurrent state counts as attention.
    """
    total = dict.fromkeys(KINDS, Work())
    for group in model.layers:
        for kind, work in _layer_work(group, model.width, context_tokens).items():
            total[kind] += work.times(group.count)
    return total


def total_work(work: dict[Kind, Work]) -> Work:
    """Return the work of all kinds together."""
    return sum(work.values(), Work())


def with_ffn_matrices(model: ModelShape, matrices: int) -> ModelShape:
    """Return the model with so many matrices in each FFN or expert: 2 plain, 3 gated."""
    return model.with_ffns(lambda ffn: ffn.model_copy(update={"matrices": matrices}))


def _layer_work(group: LayerGroup, width: int, context_tokens: int) -> dict[Kind, Work]:
    mixer, ffn = group.mixer, group.ffn
    projected = mixer.params(width)
    return {
        "projections": Work(2 * projected, projected),
        "attention": _attention_work(mixer, context_tokens),
        "FFN": Work(2 * ffn.active_params(width), ffn.touched_params(width, 1)),
    }


def _attention_work(mixer: Mixer, context_tokens: int) -> Work:
    seen = int(visible(mixer, np.array([context_tokens]))[0])
    state = mixer.state_passes * mixer.state_elements()
    flops = mixer.decode_flops_per_pair() * seen + STATE_FLOPS * state
    return Work(flops, mixer.kv_elements() * kv_sharing(mixer) * seen + state)
