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
from servetwin.engine.native.linear import pack

_SOURCE = Path(__file__).with_name("quantised_linear.c")


def can_multiply(weight: Int8Weight | Int4Weight) -> bool:
    """Return whether the kernels take such a weight, and can be compiled here."""
    fits = isinstance(weight, Int8Weight) or not (weight.group % 2 or weight.codes.shape[1] % 2)
    return fits and weight.codes.device.type == "cpu" and _library() is not None


class _NativeProduct(QuantisedProduct):
    """A product by one of the kernels."""

    backend = "native"
    kernel: str

    def __init__(self, weight: Int8Weight | Int4Weight, *packed: Tensor, group: int = 0) -> None:
        """Keep the ``packed`` tensors that the kernel reads; int4 has a ``group`` besides."""
        super().__init__(weight)
        self._packed = packed
        self._sizes = (len(weight.codes), group) if group else (len(weight.codes),)

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        wide = x.float().contiguous()
        y = wide.new_empty((len(x), self._sizes[0]))
        tensors = (wide, *self._packed, y, *self.scratch(len(x)))
        multiply, threads = getattr(_loaded(), self.kernel), torch.get_num_threads()
        multiply(*map(Tensor.data_ptr, tensors), *x.shape, *self._sizes, threads)
        return y.to(x.dtype)

    def scratch(self, rows: int) -> tuple[Tensor, ...]:
        """Return further memory that the kernel writes to."""
        del rows
        return ()


class NativeInt8Product(_NativeProduct):
    """int8 weights, widened inside the product."""

    kernel = "int8"

    def __init__(self, weight: Int8Weight) -> None:
        lanes = _loaded().lanes()
        super().__init__(weight, pack(weight.codes, lanes), _padded(weight.scales, lanes))


class NativeInt4Product(_NativeProduct):
    """int4 weights, widened inside the product."""

    kernel = "int4"

    def __init__(self, weight: Int4Weight) -> None:
        lanes, codes = _loaded().lanes(), weight.codes
        grid = torch.stack((weight.scales, weight.middles), 2).flatten(1)
        packed = pack(codes[:, ::2] | codes[:, 1::2] << 4, lanes), pack(grid, lanes)
        super().__init__(weight, *packed, group=weight.group)


class NativeIntegerProduct(_NativeProduct):
    """int8 weights and activations: rows are rounded, then multiplied in exact integers."""

    kernel = "w8a8"

    def __init__(self, weight: Int8Weight) -> None:
        lanes, inputs = _loaded().lanes(), weight.codes.shape[1]
        self._width = -(-inputs // 4) * 4
        sums = weight.codes.sum(1, dtype=torch.int32) * 128  # codes of rows are 128 too high
        super().__init__(
            weight,
            pack(F.pad(weight.codes, (0, self._width - inputs)), lanes, 4),
            _padded(weight.scales, lanes),
            _padded(sums, lanes),
        )

    def scratch(self, rows: int) -> tuple[Tensor, ...]:
        """Return room for the codes and the scales of the rows."""
        return torch.empty(rows * self._width, dtype=torch.uint8), torch.empty(rows)


def _padded(outputs: Tensor, lanes: int) -> Tensor:
    """Return a number for each output, with zeros up to whole panels."""
    return F.pad(outputs, (0, -len(outputs) % lanes))


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
