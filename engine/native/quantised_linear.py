"""Products with rounded weights in C, on the CPU: ``quantised_linear.c``.

One row takes 0.5 (int8), 0.4 (int4) and 0.3 (w8a8) times as long as with float32 weights. A row's
result does not depend on the rows beside it, to the last bit.
"""

from ctypes import CDLL, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.formats.rounded_weights import Int4Weight, Int8Weight, QuantisedProduct
from servetwin.engine.native.compiler import load_functions

_SOURCE = Path(__file__).with_name("quantised_linear.c")


def can_multiply(weight: Int8Weight | Int4Weight) -> bool:
    """Return whether the kernels take such a weight, and can be compiled here."""
    fits = isinstance(weight, Int8Weight) or not (weight.group % 2 or weight.codes.shape[1] % 2)
    return fits and weight.codes.device.type == "cpu" and _library() is not None


class NativeInt8Product(QuantisedProduct):
    """int8 weights, widened inside the product."""

    backend = "native"

    def __init__(self, weight: Int8Weight) -> None:
        super().__init__(weight)
        lanes = _loaded().lanes()
        self._outputs = len(weight.codes)
        self._packed = pack(weight.codes, lanes, 1)
        self._scales = F.pad(weight.scales, (0, -self._outputs % lanes))

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        wide = x.float().contiguous()
        y = wide.new_empty((len(x), self._outputs))
        tensors = (wide, self._packed, self._scales, y)
        _loaded().int8(*map(Tensor.data_ptr, tensors), *x.shape, self._outputs, _threads())
        return y.to(x.dtype)


class NativeInt4Product(QuantisedProduct):
    """int4 weights, widened inside the product."""

    backend = "native"

    def __init__(self, weight: Int4Weight) -> None:
        super().__init__(weight)
        lanes = _loaded().lanes()
        self._outputs, self._group = len(weight.codes), weight.group
        even, odd = weight.codes[:, ::2], weight.codes[:, 1::2]
        self._packed = pack(even | odd << 4, lanes, 1)
        grid = torch.stack((weight.scales, weight.middles), 2).flatten(1)
        self._grid = pack(grid, lanes, 1)

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        wide = x.float().contiguous()
        y = wide.new_empty((len(x), self._outputs))
        tensors = map(Tensor.data_ptr, (wide, self._packed, self._grid, y))
        _loaded().int4(*tensors, *x.shape, self._outputs, self._group, _threads())
        return y.to(x.dtype)


class NativeIntegerProduct(QuantisedProduct):
    """int8 weights and activations: rows are rounded, then multiplied in exact integers."""

    backend = "native"

    def __init__(self, weight: Int8Weight) -> None:
        super().__init__(weight)
        lanes = _loaded().lanes()
        self._outputs, inputs = weight.codes.shape
        padding = -self._outputs % lanes
        self._width = -(-inputs // 4) * 4
        self._packed = pack(F.pad(weight.codes, (0, self._width - inputs)), lanes, 4)
        self._scales = F.pad(weight.scales, (0, padding))
        sums = weight.codes.sum(1, dtype=torch.int32) * 128  # codes of rows are 128 too high
        self._sums = F.pad(sums, (0, padding))

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        wide = x.float().contiguous()
        y = wide.new_empty((len(x), self._outputs))
        codes = torch.empty(len(x) * self._width, dtype=torch.uint8)
        tensors = (wide, self._packed, self._scales, self._sums, y, codes, wide.new_empty(len(x)))
        _loaded().w8a8(*map(Tensor.data_ptr, tensors), *x.shape, self._outputs, _threads())
        return y.to(x.dtype)


def pack(rows: Tensor, lanes: int, together: int) -> Tensor:
    """Return [outputs, inputs] as [panels, inputs / together, lanes, together]; the last panel is
    padded by 0.
    """
    outputs, inputs = rows.shape
    padded = rows.new_zeros((-(-outputs // lanes) * lanes, inputs))
    padded[:outputs] = rows
    panels = padded.view(-1, lanes, inputs // together, together)
    return panels.transpose(1, 2).contiguous()


def _threads() -> int:
    return torch.get_num_threads()


def _loaded() -> CDLL:
    library = _library()
    assert library is not None, "can_multiply must hold"
    return library


@cache
def _library() -> CDLL | None:
    kernels = {"int8": (4, 3), "int4": (4, 4), "w8a8": (7, 3)}
    arguments = {
        name: [*[c_void_p] * pointers, *[c_int64] * sizes, c_int]
        for name, (pointers, sizes) in kernels.items()
    }
    return load_functions(_SOURCE, arguments)
