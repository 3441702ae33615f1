"""What a technique of attention demands of a model."""

from sim.shapes.mixers import Recurrence
from sim.shapes.model import ModelShape
from sim.techniques.technique import Technique
from workloads.errors import PolicyError


def require_softmax(technique: Technique, model: ModelShape) -> None:
    """Refuse a model whose layers all keep a constant state (``PolicyError``)."""
    if all(isinstance(group.mixer, Recurrence) for group in model.layers):
        raise PolicyError(
            f"{technique.name}: {model.name} has no softmax attention, only recurrent layers"
        )
