"""The largest number of each row is found as torch finds it."""

import pytest
import torch

from servetwin.engine.sampling.distribution import argmax


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_it_is_that_of_torch(dtype: torch.dtype) -> None:
    rows = torch.randn(5, 1000).to(dtype)
    assert torch.equal(argmax(rows), rows.argmax(-1))


def test_of_equal_numbers_it_is_the_first() -> None:
    rows = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [-torch.inf, -torch.inf, 0.0]])
    assert argmax(rows).tolist() == [1, 0, 2]


def test_rows_that_are_not_contiguous() -> None:
    rows = torch.randn(7, 9).T
    assert torch.equal(argmax(rows), rows.argmax(-1))
