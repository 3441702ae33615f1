"""Number formats of weights: their names, and the product for each on a device."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.formats.rounded_weights import (
    Int4Weight,
    Int8Weight,
    QuantisedProduct,
    round_rows,
)
from servetwin.engine.kernels.choose_operators import has_triton
from servetwin.engine.native.quantised_linear import (
    NativeInt4Product,
    NativeInt8Product,
    NativeIntegerProduct,
    can_multiply,
)
from servetwin.workloads.errors import EngineError, require_name

# CUDA's int8 product takes more than 16 rows.
_INT_MM_ROWS = 32
# It takes sizes in multiples of this.
_INT_MM_STEP = 8


class RestoredProduct(QuantisedProduct):
    """The reference of weight-only formats: restores the weight in every call."""

    backend = "restored"

    def __init__(self, weight: Int8Weight | Int4Weight) -> None:
        super().__init__(weight)
        self._weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        return F.linear(x, self._weight.restored().to(x.dtype))


class IntegerProduct(QuantisedProduct):
    """int8 weights and activations, with a scale per output and per row, in exact integers."""

    backend = "int_mm"

    def __init__(self, weight: Int8Weight) -> None:
        super().__init__(weight)
        padding = (0, -weight.codes.shape[1] % _INT_MM_STEP, 0, -len(weight.codes) % _INT_MM_STEP)
        self._codes, self._scales = F.pad(weight.codes, padding), weight.scales

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        codes, scales = round_rows(x)
        padding = (0, self._codes.shape[1] - x.shape[1], 0, max(_INT_MM_ROWS - len(x), 0))
        sums = torch._int_mm(F.pad(codes.to(torch.int8), padding), self._codes.T)
        exact = sums[: len(x), : len(self._scales)]
        return (exact * self._scales * scales).to(x.dtype)


AS_DTYPE = "as-dtype"
WEIGHT_FORMATS = (AS_DTYPE, "int8", "int4", "w8a8")


def check_weight_format(name: str, group: int) -> None:
    """Raise ``EngineError`` for a format that does not exist, or a group that is none."""
    require_name(name, WEIGHT_FORMATS, "unknown weight_format", EngineError)
    if group < 1:
        raise EngineError(f"weight_group: {group} weights cannot share a scale, use 1 or more")


_NATIVE: dict[str, Callable[[Any], QuantisedProduct]] = {
    "int8": NativeInt8Product, "int4": NativeInt4Product, "w8a8": NativeIntegerProduct,
}  # fmt: skip


def quantised_product(name: str, weight: Tensor, *, group: int, prepack: bool) -> QuantisedProduct:
    """Return the product with ``weight`` rounded to the format ``name``: in C, or on CUDA by
    Triton, where that is there.

    Else, and without ``prepack``, it is the reference: plain torch, the same on every device.
    """
    group = min(group, weight.shape[1])
    rounded: Any = Int4Weight.of(weight, group) if name == "int4" else Int8Weight.of(weight)
    if prepack and can_multiply(rounded):
        return _NATIVE[name](rounded)
    if name == "w8a8":
        return IntegerProduct(rounded)
    if prepack and weight.device.type == "cuda" and has_triton():
        from servetwin.engine.kernels.rounded_product import TritonProduct

        return TritonProduct(rounded)
    return RestoredProduct(rounded)
