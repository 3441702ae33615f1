"""Number formats of weights: their names, and the fastest product for each on a device."""

from typing import Protocol

from torch import Tensor

from servetwin.engine.formats.rounded_weights import Int4Weight, Int8Weight
from servetwin.engine.formats.torch_products import (
    DigitsProduct,
    IntegerProduct,
    OnednnProduct,
    PackedInt4Product,
    RestoredProduct,
)
from servetwin.engine.native.quantised_linear import (
    NativeInt4Product,
    NativeInt8Product,
    NativeIntegerProduct,
    can_multiply,
)
from servetwin.workloads.errors import EngineError

AS_DTYPE = "as-dtype"
WEIGHT_FORMATS = (AS_DTYPE, "int8", "int4", "w8a8")


class QuantisedProduct(Protocol):
    """A product with rounded weights."""

    backend: str
    """Which kernel multiplies."""
    bytes: int
    """Size of the rounded weights."""

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""


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
