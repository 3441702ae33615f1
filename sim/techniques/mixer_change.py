"""Change what layers do along the sequence: all that have softmax attention, or all but some."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from sim.shapes.mixers import Attention, Mixer
from sim.shapes.model import LayerGroup
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError

OneIn = Annotated[int | None, Field(ge=2)]
"""One layer in so many stays as it is; None: no layer does."""


def change_attention(
    technique: Technique, setup: Setup, change: Callable[[Attention], Mixer], keep: OneIn = None
) -> Setup:
    """``setup`` with its layers' softmax attention changed; one layer in ``keep`` stays.

    Raises ``PolicyError`` where there is none to change, or too few layers for one to stay.
    """
    model = setup.deployment.model
    counts = [g.count for g in model.layers if isinstance(g.mixer, Attention)]
    if not counts:
        raise PolicyError(
            f"{technique.name}: {model.name} has no attention with key and value heads to change"
        )
    if keep and keep > max(counts):
        raise PolicyError(
            f"{technique.name}: one layer in {keep} cannot stay as it is, {model.name} has "
            f"{max(counts)} equal layers; at most one in {max(counts)}"
        )
    layers = tuple(part for group in model.layers for part in _changed(group, change, keep))
    return setup.with_deployment(model=model.model_copy(update={"layers": layers}))


def _changed(
    group: LayerGroup, change: Callable[[Attention], Mixer], keep: OneIn
) -> list[LayerGroup]:
    if not isinstance(group.mixer, Attention):
        return [group]
    kept = group.count // keep if keep else 0
    new = {"count": group.count - kept, "mixer": change(group.mixer)}
    parts = [group.model_copy(update=new)]
    if kept:
        parts.append(group.model_copy(update={"count": kept}))
    return parts
