"""Affine grids, as the lectures compute them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.formulas.affine_grid import AffineGrid


def test_the_grid_over_minus_one_to_three() -> None:
    grid = AffineGrid.over(-1, 3)
    assert grid.scale == pytest.approx(0.0156862745, abs=5e-11)
    assert grid.zero_point == pytest.approx(-64.25)
    assert grid.worst_error == pytest.approx(0.0078431, abs=5e-8)


def test_the_smallest_number_gets_the_lowest_code() -> None:
    """Z = Qmax - Rmin / S, as sometimes printed, would send the smallest to the highest."""
    grid = AffineGrid.over(-1, 3)
    assert grid.quantise(np.array([-1.0, 3.0, -9.0, 9.0])).tolist() == [-128, 127, -128, 127]
    assert grid.zero_point == pytest.approx(127 - 3 / grid.scale)
    printed = replace(grid, zero_point=127 + 1 / grid.scale)
    assert printed.quantise(np.array([-1.0])).tolist() == [127]


@pytest.mark.parametrize("bounds", [(3, 3), (3, -1)])
def test_no_grid_over_an_empty_range(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="must ascend"):
        AffineGrid.over(*bounds)


@given(
    st.floats(-1e3, 1e3),
    st.floats(1e-3, 1e3),
    st.integers(2, 8),
    st.lists(st.floats(0, 1), min_size=1),
)
def test_no_number_in_the_range_is_off_by_more_than_half_a_step(
    smallest: float, width: float, bits: int, places: list[float]
) -> None:
    grid = AffineGrid.over(smallest, smallest + width, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    values = smallest + width * np.array(places)
    errors = np.abs(grid.restore(grid.quantise(values)) - values)
    assert errors.max() <= grid.worst_error * (1 + 1e-6)
    assert (np.diff(grid.quantise(np.sort(values))) >= 0).all()
