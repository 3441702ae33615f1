"""Where tensors live: choice of device and number format, and the way from host to device."""

import platform
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from servetwin.workloads.errors import EngineError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``; ``auto`` is CUDA where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise EngineError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise EngineError(f"device {name!r} is not supported: use auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EngineError(
            f"device {name!r} is not here: torch sees {torch.cuda.device_count()} CUDA devices"
        )
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype called ``name``; ``auto`` is bfloat16 on CUDA, float32 on the CPU."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in _DTYPES:
        raise EngineError(f"unknown dtype {name!r}: use auto, float32, bfloat16 or float16")
    return _DTYPES[name]


def device_name(device: torch.device) -> str:
    """Return the manufacturer's name of the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def to_device(values: NDArray[np.int64] | list[int], device: torch.device) -> torch.Tensor:
    """Return an int64 tensor of ``values``; on CUDA the copy does not block the host."""
    return _copied(torch.from_numpy(np.asarray(values, dtype=np.int64)), device)


def floats_to_device(
    values: list[float] | NDArray[np.float32], device: torch.device
) -> torch.Tensor:
    """Return a float32 tensor of ``values``; on CUDA the copy does not block the host."""
    return _copied(torch.tensor(values, dtype=torch.float32), device)


def _copied(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type != "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in host memory: itself on the CPU, from CUDA a copy that does not block."""
    if tensor.device.type != "cuda":
        return tensor
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return pinned.copy_(tensor, non_blocking=True)
