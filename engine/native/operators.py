"""The operators between products in C, for float32 on the CPU: one call each, not three to five."""

from ctypes import CDLL, c_float, c_int64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from servetwin.engine.models.operators import Operators
from servetwin.engine.native.compiler import load_functions

_SOURCE = Path(__file__).with_name("operators.c")
_POINTER, _SIZE, _FLOAT = c_void_p, c_int64, c_float
_ARGUMENTS = {
    "rms_norm": [*[_POINTER] * 3, *[_SIZE] * 3, _FLOAT],
    "add_norm": [*[_POINTER] * 5, *[_SIZE] * 2, _FLOAT],
    "rotate": [*[_POINTER] * 4, *[_SIZE] * 4],
    "swiglu": [*[_POINTER] * 2, *[_SIZE] * 2],
}


class NativeOperators(Operators):
    """``Operators`` of ``operators.c``; other number formats are left to torch."""

    def __init__(self, library: CDLL) -> None:
        self._library = library

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return the norm of the last axis, by one row of weights or by one for each head."""
        if x.dtype != torch.float32:
            return super().rms_norm(x, weight, eps)
        x, width = x.contiguous(), x.shape[-1]
        out = torch.empty_like(x)
        sizes = (x.numel() // width, width, weight.numel() // width)
        tensors = (x.data_ptr(), weight.data_ptr(), out.data_ptr())
        self._library.rms_norm(*tensors, *sizes, eps)
        return out

    def add_norm(
        self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return ``x + delta`` (None: nothing is added) and its norm."""
        if delta is None:
            return x, self.rms_norm(x, weight, eps)
        if x.dtype != torch.float32:
            return super().add_norm(x, delta, weight, eps)
        x, delta = x.contiguous(), delta.contiguous()
        total, out = torch.empty_like(x), torch.empty_like(x)
        tensors = (x, delta, weight, total, out)
        self._library.add_norm(*(tensor.data_ptr() for tensor in tensors), *x.shape, eps)
        return total, out

    def rotate(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return ``heads`` [rows, heads, width] turned by their positions."""
        rows, count, width = heads.shape
        if heads.dtype != torch.float32 or cos.shape != (rows, 1, width):
            return super().rotate(heads, cos, sin)
        if heads.stride()[1:] != (width, 1):
            heads = heads.contiguous()
        out = heads.new_empty(heads.shape)
        tensors = (heads, cos.contiguous(), sin.contiguous(), out)
        addresses = (tensor.data_ptr() for tensor in tensors)
        self._library.rotate(*addresses, rows, heads.stride(0), count, width)
        return out

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """Return ``silu(gate) * up`` for [rows, gate and up]."""
        if gate_up.dtype != torch.float32:
            return super().swiglu(gate_up)
        gate_up, width = gate_up.contiguous(), gate_up.shape[1] // 2
        out = gate_up.new_empty((len(gate_up), width))
        self._library.swiglu(gate_up.data_ptr(), out.data_ptr(), len(gate_up), width)
        return out


@cache
def native_operators() -> NativeOperators | None:
    """Return the operators; None where nothing here compiles them."""
    library = load_functions(_SOURCE, _ARGUMENTS)
    return None if library is None else NativeOperators(library)
