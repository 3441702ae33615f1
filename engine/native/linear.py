"""Products with fixed float32 weights in C: one row runs as fast as the weights are read.

oneDNN's prepacked product takes 1.3 times as long for one row, and as long for many. A row's
result does not depend on the rows beside it, to the last bit.
"""

from copy import copy
from ctypes import CDLL, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.native.compiler import load_functions

_SOURCE = Path(__file__).with_name("linear.c")


class NativeLinear:
    """``x @ weight.T`` by ``linear.c``."""

    __slots__ = ("_kernel", "_lanes", "_outputs", "_packed")

    backend = "native"

    def __init__(self, weight: Tensor) -> None:
        """Pack ``weight`` [output size, input size]; ``can_multiply`` must hold for it."""
        library = _library()
        assert library is not None
        self._kernel, self._outputs, self._lanes = library.linear, len(weight), library.lanes()
        self._packed = pack(weight, self._lanes)

    @staticmethod
    def can_multiply(weight: Tensor) -> bool:
        """Return whether the kernel takes such a weight, and can be compiled here."""
        on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
        return on_cpu and _library() is not None

    def outputs_from(self, first: int) -> "NativeLinear | None":
        """Return the product of the outputs from ``first`` on, with the same packed weights.

        None where no panel begins there.
        """
        if first % self._lanes:
            return None
        part = copy(self)
        part._outputs = self._outputs - first
        part._packed = self._packed[first // self._lanes :]
        return part

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        x = x.contiguous()
        rows, inputs = x.shape
        y = x.new_empty((rows, self._outputs))
        tensors = (x.data_ptr(), self._packed.data_ptr(), y.data_ptr())
        self._kernel(*tensors, rows, inputs, self._outputs, torch.get_num_threads())
        return y


def pack(weight: Tensor, lanes: int, together: int = 1) -> Tensor:
    """Return [outputs, inputs] as [panels, inputs / together, lanes, together]; the last panel is
    padded by 0.
    """
    missing = -len(weight) % lanes
    padded = F.pad(weight, (0, 0, 0, missing)) if missing else weight
    panels = padded.reshape(-1, lanes, weight.shape[1] // together, together)
    return panels.transpose(1, 2).contiguous()


@cache
def _library() -> CDLL | None:
    return load_functions(_SOURCE, {"linear": [*[c_void_p] * 3, *[c_int64] * 3, c_int]})
