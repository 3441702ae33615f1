"""Which operators a decoder takes: chosen once, by the device of its weights."""

import torch

from engine.kernels.triton_here import has_triton
from engine.models.operators import PLAIN, Operators


def operators_for(device: torch.device) -> Operators:
    """Return kernels of Triton on CUDA where it is installed; plain torch elsewhere."""
    if device.type != "cuda" or not has_triton():
        return PLAIN
    from engine.kernels.triton_operators import TritonOperators

    return TritonOperators()
