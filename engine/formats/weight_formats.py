"""Number formats of weights: their names, and the fastest product for each on a device."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.formats.rounded_weights import (
    Int4Weight,
    Int8Weight,
    QuantisedProduct,
    round_rows,
    row_scales,
)
from servetwin.engine.native.quantised_linear import (
    NativeInt4Product,
    NativeInt8Product,
    NativeIntegerProduct,
    can_multiply,
)
from servetwin.workloads.errors import EngineError

_INT_MM_ROWS = 32
"""CUDA's int8 product takes more than 16 rows."""
_INT_MM_STEP = 8
"""It takes sizes in multiples of this."""
_MIDDLE = 128


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


class OnednnProduct(QuantisedProduct):
    """What ``IntegerProduct`` computes, by the kernel that torch has for x86 processors."""

    backend = "onednn"

    def __init__(self, weight: Int8Weight) -> None:
        super().__init__(weight)
        self._packed: Tensor = torch.ops.onednn.qlinear_prepack(weight.codes, None)
        self._scales = weight.scales
        self._zeros = torch.zeros(len(weight.scales), dtype=torch.int32)

    @staticmethod
    def can_multiply(weight: Int8Weight) -> bool:
        """Return whether the kernel is there, and exact on this processor."""
        return weight.codes.device.type == "cpu" and _onednn_is_exact()

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        codes, scales = round_rows(x)
        return self.of_codes(codes).mul_(scales).to(x.dtype)

    def of_codes(self, codes: Tensor) -> Tensor:
        """Multiply float32 codes of -127 to 127, which are lost, by the weight."""
        unsigned = codes.add_(_MIDDLE).to(torch.uint8)  # it has no fast kernel for signed rows
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            unsigned, 1.0, _MIDDLE, self._packed, self._scales, self._zeros, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return product


class DigitsProduct(QuantisedProduct):
    """int8 weights with rows in three digits, each int8: as exact as float32, by the same kernel.

    A number is scale * (a + b / 254 + c / 254**2), so that three rows of integers stand for one of
    24 bits. Restoring the weight in every call takes 4 to 60 times as long.
    """

    backend = "onednn"

    _PLACES = (1.0, 254.0, 254.0**2)

    def __init__(self, weight: Int8Weight) -> None:
        super().__init__(weight)
        self._digits = OnednnProduct(weight)

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        places = x.new_tensor(self._PLACES, dtype=torch.float32).view(3, 1, 1)
        scales = row_scales(x)
        wholes = (x.float() / scales * places).round_()
        digits = torch.cat((wholes[:1], wholes[1:] - 254 * wholes[:-1]))
        products = self._digits.of_codes(digits.flatten(0, 1)).view(3, len(x), -1)
        return (products / places).sum(0).mul_(scales).to(x.dtype)


@cache
def _onednn_is_exact() -> bool:
    """Return whether the largest codes add up: without VNNI, 16-bit sums may overflow."""
    largest = torch.full((1, 64), 127, dtype=torch.int8)
    try:
        product = OnednnProduct(Int8Weight(largest, torch.ones(1)))
        return product(largest.float()).item() == 64 * 127**2
    except (AttributeError, RuntimeError):
        return False


class PackedInt4Product(QuantisedProduct):
    """int4 weights by torch's kernel for processors, with activations in bfloat16."""

    backend = "int4pack"

    def __init__(self, weight: Int4Weight) -> None:
        super().__init__(weight)
        pack = torch.ops.aten._convert_weight_to_int4pack_for_cpu
        self._packed = pack(weight.codes.to(torch.int32), 1)
        self._grid = torch.stack((weight.scales.T, weight.middles.T), 2).contiguous()
        self._group = weight.group

    @classmethod
    def made(cls, weight: Int4Weight) -> "PackedInt4Product | None":
        """Return the product, or None where the kernel does not take such a weight."""
        if weight.codes.device.type != "cpu":
            return None
        try:
            product = cls(weight)
            product(torch.zeros(1, weight.codes.shape[1]))
        except (AttributeError, RuntimeError):
            return None
        return product

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
        product: Tensor = multiply(x.bfloat16(), self._packed, self._group, self._grid)
        return product.to(x.dtype)


AS_DTYPE = "as-dtype"
WEIGHT_FORMATS = (AS_DTYPE, "int8", "int4", "w8a8")


def check_weight_format(name: str, group: int) -> None:
    """Raise ``EngineError`` for a format that does not exist, or a group that is none."""
    if name not in WEIGHT_FORMATS:
        known = ", ".join(WEIGHT_FORMATS[:-1])
        raise EngineError(f"unknown weight_format {name!r}: use {known} or {WEIGHT_FORMATS[-1]}")
    if group < 1:
        raise EngineError(f"weight_group: {group} weights cannot share a scale, use 1 or more")


def quantised_product(name: str, weight: Tensor, *, group: int, prepack: bool) -> QuantisedProduct:
    """Return the product with ``weight`` rounded to the format ``name``.

    Without ``prepack`` it is the reference: plain torch, the same on every device.
    """
    if name == "int4":
        return _int4(Int4Weight.of(weight, min(group, weight.shape[1])), prepack)
    rounded = Int8Weight.of(weight)
    if name == "w8a8":
        return _integer(rounded, prepack)
    return _int8(rounded, prepack)


def _int8(rounded: Int8Weight, prepack: bool) -> QuantisedProduct:
    if prepack and can_multiply(rounded):
        return NativeInt8Product(rounded)
    digits = prepack and OnednnProduct.can_multiply(rounded)
    return DigitsProduct(rounded) if digits else RestoredProduct(rounded)


def _int4(rounded: Int4Weight, prepack: bool) -> QuantisedProduct:
    if prepack and can_multiply(rounded):
        return NativeInt4Product(rounded)
    packed = PackedInt4Product.made(rounded) if prepack else None
    return RestoredProduct(rounded) if packed is None else packed


def _integer(rounded: Int8Weight, prepack: bool) -> QuantisedProduct:
    if prepack and can_multiply(rounded):
        return NativeIntegerProduct(rounded)
    if prepack and OnednnProduct.can_multiply(rounded):
        return OnednnProduct(rounded)
    return IntegerProduct(rounded)
