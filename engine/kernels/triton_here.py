"""Whether kernels that are written in Triton run here. Does not import Triton."""

import os
from importlib.util import find_spec

import torch

from servetwin.workloads.errors import EngineError


def has_triton() -> bool:
    """Return whether Triton is installed; it comes with torch for CUDA on Linux."""
    return find_spec("triton") is not None


def interprets() -> bool:
    """Return whether Triton is asked to run its kernels on the CPU, slowly, for tests."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def require_triton(feature: str, device: torch.device) -> None:
    """Raise ``EngineError`` where a kernel of Triton cannot run on ``device``."""
    if not has_triton():
        raise EngineError(f"{feature} needs Triton: pip install triton")
    if device.type != "cuda" and not interprets():
        raise EngineError(f"{feature} needs a CUDA device, or TRITON_INTERPRET=1 for a trial")
