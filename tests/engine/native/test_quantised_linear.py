"""Products with rounded weights in C, for every number of rows and outputs."""

import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.formats.rounded_weights import Int4Weight, Int8Weight, QuantisedProduct
from servetwin.engine.formats.weight_formats import IntegerProduct, RestoredProduct
from servetwin.engine.native.linear import pack
from servetwin.engine.native.quantised_linear import (
    NativeInt4Product,
    NativeInt8Product,
    NativeIntegerProduct,
    can_multiply,
)

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@given(rows=st.integers(1, 26), inputs=st.integers(1, 70), outputs=st.integers(1, 150))
def test_int8_and_w8a8_are_the_reference(rows: int, inputs: int, outputs: int) -> None:
    x, weight = torch.randn(rows, inputs), Int8Weight.of(torch.randn(outputs, inputs))
    pairs = (
        (NativeInt8Product(weight), RestoredProduct(weight)),
        (NativeIntegerProduct(weight), IntegerProduct(weight)),
    )
    for native, reference in pairs:
        torch.testing.assert_close(native(x), reference(x), rtol=1e-5, atol=1e-4)


@given(
    rows=st.integers(1, 26),
    inputs=st.integers(1, 35),
    outputs=st.integers(1, 150),
    group=st.integers(1, 20),
)
def test_int4_is_the_reference(rows: int, inputs: int, outputs: int, group: int) -> None:
    x, exact = torch.randn(rows, 2 * inputs), torch.randn(outputs, 2 * inputs)
    weight = Int4Weight.of(exact, 2 * group)
    torch.testing.assert_close(
        NativeInt4Product(weight)(x), RestoredProduct(weight)(x), rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize("rows", [2, 6, 7, 18, 19, 31])
def test_a_row_does_not_depend_on_its_batch(rows: int) -> None:
    x, exact = torch.randn(rows, 200), torch.randn(90, 200)
    int8, int4 = Int8Weight.of(exact), Int4Weight.of(exact, 64)
    for product in (NativeInt8Product(int8), NativeIntegerProduct(int8), NativeInt4Product(int4)):
        together = product(x)
        for index in range(rows):
            assert torch.equal(product(x[index : index + 1])[0], together[index])


@pytest.mark.parametrize("rows", [1, 40])
def test_two_threads_compute_what_one_does(rows: int) -> None:
    x, exact = torch.randn(rows, 64), torch.randn(300, 64)
    int8, int4 = Int8Weight.of(exact), Int4Weight.of(exact, 32)
    products: list[QuantisedProduct] = [
        NativeInt8Product(int8), NativeIntegerProduct(int8), NativeInt4Product(int4)
    ]  # fmt: skip
    alone, threads = [product(x) for product in products], torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for product, before in zip(products, alone, strict=True):
            assert torch.equal(product(x), before)
    finally:
        torch.set_num_threads(threads)


def test_the_largest_codes_do_not_overflow() -> None:
    weight = Int8Weight(torch.full((3, 4096), 127, dtype=torch.int8), torch.ones(3))
    assert NativeIntegerProduct(weight)(torch.full((1, 4096), -127.0)).tolist() == [
        [-4096.0 * 127**2] * 3
    ]


def test_what_has_no_whole_bytes_or_pairs_is_left_to_torch() -> None:
    exact = torch.randn(4, 9)
    assert can_multiply(Int8Weight.of(exact))
    assert not can_multiply(Int4Weight.of(exact, 2))
    assert not can_multiply(Int4Weight.of(exact[:, :8], 3))


def test_packing_keeps_what_lies_together() -> None:
    packed = pack(torch.arange(1, 1 + 3 * 8).view(3, 8), 2, 4)
    assert packed.shape == (2, 2, 2, 4)
    assert packed[0, 1].tolist() == [[5, 6, 7, 8], [13, 14, 15, 16]]
    assert packed[1, 0].tolist() == [[17, 18, 19, 20], [0, 0, 0, 0]]
