"""Torch's own kernels for rounded weights."""

import platform
from types import SimpleNamespace

import pytest
import torch

from servetwin.engine.formats import weight_formats as torch_products
from servetwin.engine.formats.rounded_weights import Int4Weight, Int8Weight
from servetwin.engine.formats.weight_formats import (
    DigitsProduct,
    IntegerProduct,
    OnednnProduct,
    PackedInt4Product,
    RestoredProduct,
)

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="kernels for x86")


@on_x86
@pytest.mark.parametrize("rows", [1, 2, 17, 33])
def test_both_integer_kernels_multiply_the_same_integers(rows: int) -> None:
    x, weight = torch.randn(rows, 96), Int8Weight.of(torch.randn(130, 96))
    assert OnednnProduct.can_multiply(weight)
    torch.testing.assert_close(
        OnednnProduct(weight)(x), IntegerProduct(weight)(x), rtol=1e-5, atol=1e-5
    )


@on_x86
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 33])
def test_three_digits_are_as_exact_as_float32(rows: int, dtype: torch.dtype) -> None:
    x, weight = torch.randn(rows, 256).to(dtype), Int8Weight.of(torch.randn(130, 256))
    x[0, 7], x[-1] = 40.0, x[-1] * 1e-3
    product = DigitsProduct(weight)(x)
    assert product.dtype == dtype
    exact = x.double() @ weight.restored().double().T
    bound = (2**-20 if dtype == torch.float32 else 2**-8) * x.double().abs().sum(1, keepdim=True)
    assert ((product.double() - exact).abs() <= 3 * bound).all()


@on_x86
@pytest.mark.parametrize("group", [32, 64, 128])
def test_the_int4_kernel_is_as_exact_as_bfloat16(group: int) -> None:
    x, weight = torch.randn(3, 256), Int4Weight.of(torch.randn(64, 256), group)
    product = PackedInt4Product.made(weight)
    assert product is not None
    error = (product(x) - RestoredProduct(weight)(x)).abs()
    assert (error <= 2**-8 * (x.abs() @ weight.restored().abs().T)).all()


def test_a_weight_that_the_int4_kernel_does_not_take_has_no_such_product() -> None:
    assert PackedInt4Product.made(Int4Weight.of(torch.randn(64, 250), 50)) is None


@pytest.mark.parametrize(
    "operators",
    [
        SimpleNamespace(),
        SimpleNamespace(
            qlinear_prepack=lambda codes, shape: codes,
            qlinear_pointwise=lambda *_: torch.tensor([[64.0 * 2**13]]),
        ),
    ],
    ids=["missing", "overflows"],
)
def test_a_kernel_that_is_not_exact_here_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, operators: SimpleNamespace
) -> None:
    monkeypatch.setattr(torch.ops, "onednn", operators)
    torch_products._onednn_is_exact.cache_clear()
    try:
        assert not OnednnProduct.can_multiply(Int8Weight.of(torch.randn(8, 8)))
    finally:
        torch_products._onednn_is_exact.cache_clear()
