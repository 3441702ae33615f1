"""Which operators a decoder takes: chosen once, by the device of its weights."""

import torch

from servetwin.engine.kernels.triton_here import has_triton
from servetwin.engine.models.operators import PLAIN, Operators
from servetwin.engine.native.operators import native_operators


def operators_for(device: torch.device) -> Operators:
    """Return kernels of Triton on CUDA and C on the CPU where they are there, else plain torch."""
    if device.type == "cpu":
        return native_operators() or PLAIN
    if device.type != "cuda" or not has_triton():
        return PLAIN
    from servetwin.engine.kernels.triton_operators import TritonOperators

    return TritonOperators()
