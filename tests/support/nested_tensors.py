"""The tensors of nested weights."""

import torch

from servetwin.engine.models.weights import Weights


def tensors_of(weights: Weights) -> list[torch.Tensor]:
    """All tensors, in a fixed order."""
    layers = [layer[name] for layer in weights.layers for name in sorted(layer)]
    return [weights.embedding, *layers, weights.final_norm, weights.head]
