"""Products in C against exact ones, for every number of rows and outputs."""

import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.models.computation import Computation
from servetwin.engine.models.linear import PREPACKED, Products
from servetwin.engine.native.linear import NativeLinear, pack

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@given(rows=st.integers(1, 20), inputs=st.integers(1, 70), outputs=st.integers(1, 150))
def test_it_is_the_product(rows: int, inputs: int, outputs: int) -> None:
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    product = NativeLinear(weight)(x)
    assert product.shape == (rows, outputs)
    exact = x.double() @ weight.double().T
    torch.testing.assert_close(product.double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", [2, 6, 7, 8, 31])
def test_a_row_does_not_depend_on_its_batch(rows: int) -> None:
    x, linear = torch.randn(rows, 200), NativeLinear(torch.randn(90, 200))
    together = linear(x)
    for index in range(rows):
        assert torch.equal(linear(x[index : index + 1])[0], together[index])


def test_two_threads_compute_what_one_does() -> None:
    x, linear = torch.randn(9, 64), NativeLinear(torch.randn(300, 64))
    alone, threads = linear(x), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert torch.equal(linear(x), alone)
    finally:
        torch.set_num_threads(threads)


def test_rows_of_another_stride_are_read_as_they_are() -> None:
    x, weight = torch.randn(64, 8), torch.randn(40, 64)
    torch.testing.assert_close(NativeLinear(weight)(x.T), x.T @ weight.T)


def test_packing_keeps_every_weight_once() -> None:
    weight = torch.arange(1.0, 1 + 5 * 3).view(5, 3)
    packed = pack(weight, 4).squeeze(3)
    assert packed.shape == (2, 3, 4)
    assert packed[0, 1].tolist() == weight[:4, 1].tolist()
    assert packed[1, 2].tolist() == [weight[4, 2].item(), 0, 0, 0]


def test_what_it_cannot_multiply_is_left_to_torch() -> None:
    make, weight = Products(Computation()), torch.randn(8, 8)
    assert make("head", weight).backend == NativeLinear.backend
    assert make("head", weight.bfloat16()).backend in (PREPACKED, "plain")
    assert Products(Computation(prepack=False))("head", weight).backend == "plain"
