"""Which operators a decoder takes: chosen once, by the device of its weights."""

import os
from importlib.util import find_spec

import torch

from servetwin.engine.models.operators import PLAIN, Operators
from servetwin.engine.native.operators import native_operators
from servetwin.workloads.errors import EngineError


def has_triton() -> bool:
    """Return whether Triton is installed; it comes with torch for CUDA on Linux."""
    return find_spec("triton") is not None


def interprets() -> bool:
    """Return whether Triton interprets its kernels on the CPU, slowly, for tests."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def require_triton(feature: str, device: torch.device) -> None:
    """Raise ``EngineError`` where a kernel of Triton cannot run on ``device``."""
    if not has_triton():
        raise EngineError(f"{feature} needs Triton: pip install triton")
    if device.type != "cuda" and not interprets():
        raise EngineError(f"{feature} needs a CUDA device, or TRITON_INTERPRET=1 for a trial")


def operators_for(device: torch.device) -> Operators:
    """Return kernels of Triton on CUDA and C on the CPU where they are there, else plain torch."""
    if device.type == "cpu":
        return native_operators() or PLAIN
    if device.type != "cuda" or not has_triton():
        return PLAIN
    from servetwin.engine.kernels.triton_operators import TritonOperators

    return TritonOperators()
