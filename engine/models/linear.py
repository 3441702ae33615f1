"""Matrix products with fixed weights.

``_LEAST_ROWS``: oneDNN takes fewer rows in other kernels, which are a third slower on some
processors. ``MakeLinear``: makes the product from its name, such as ``layers.3.qkv``, and its
weight [output size, input size].
"""

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.formats.weight_formats import AS_DTYPE, check_weight_format, quantised_product
from servetwin.engine.models.computation import Computation
from servetwin.engine.native.linear import NativeLinear

PREPACKED = "onednn-prepacked"
PLAIN = "plain"

_LEAST_ROWS = 4


class LinearMap(Protocol):
    """A product with fixed weights."""

    backend: str
    """Which kernel multiplies."""

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""


MakeLinear = Callable[[str, Tensor], LinearMap]


class Products:
    """Makes the products of a decoder (``MakeLinear``), and counts what their weights weigh."""

    def __init__(self, computation: Computation) -> None:
        check_weight_format(computation.weight_format, computation.weight_group)
        self._computation = computation
        # Of all products made so far, as they are kept: rounded weights with their scales.
        self.weight_bytes = 0

    def __call__(self, name: str, weight: Tensor) -> LinearMap:
        """Return the product with ``weight`` in the format of the computation."""
        del name
        prepack, form = self._computation.prepack, self._computation.weight_format
        if form != AS_DTYPE:
            group = self._computation.weight_group
            rounded = quantised_product(form, weight, group=group, prepack=prepack)
            self.weight_bytes += rounded.bytes
            return rounded
        self.weight_bytes += weight.nbytes
        if prepack and NativeLinear.can_multiply(weight):
            return NativeLinear(weight)
        return Linear(weight, prepack=prepack)


def within(make_linear: MakeLinear, place: str) -> MakeLinear:
    """Return what makes the products of one place of the model, such as ``layers.3``."""
    return lambda name, weight: make_linear(f"{place}.{name}", weight)


def biased(product: LinearMap, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Return what multiplies and adds the bias, if there is one."""
    return product if bias is None else lambda x: product(x) + bias


class Linear:
    """``x @ weight.T``, on the CPU with the weight kept in oneDNN's own blocked layout.

    Prepacking makes small batches 1.3 to 3.5 times faster than ``F.linear`` in float32, which
    reorders the weight in every call. The operators are private to torch, hence the fallback.
    """

    __slots__ = ("_kernel", "_least_rows", "_weight", "backend")

    def __init__(self, weight: Tensor, *, prepack: bool = True) -> None:
        packed = _prepacked(weight) if prepack and weight.device.type == "cpu" else None
        self._weight = weight if packed is None else packed
        self._kernel = F.linear if packed is None else _prepacked_linear
        self.backend = PLAIN if packed is None else PREPACKED
        self._least_rows = 1 if packed is None else _LEAST_ROWS  # fewer are padded

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        rows = x.shape[0]
        if rows >= self._least_rows:
            return self._kernel(x, self._weight)
        return self._kernel(torch.cat([x] * -(-self._least_rows // rows)), self._weight)[:rows]


def _prepacked(weight: Tensor) -> Tensor | None:
    """Return ``weight`` in oneDNN's layout, or None where this torch cannot make or use it."""
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
        _prepacked_linear(weight.new_zeros(1, weight.shape[1]), packed)
    except (AttributeError, RuntimeError):
        return None
    return packed


def _prepacked_linear(x: Tensor, packed: Tensor) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
    return product
