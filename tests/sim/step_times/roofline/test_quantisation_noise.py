"""Noise of rounding by formula, against weights that are really rounded."""

import numpy as np
import numpy.typing as npt
import pytest

from servetwin.sim.step_times.roofline.formats import (
    DB_PER_BIT,
    FORMATS,
    Grid,
    most_sqnr_db,
    noise_bits,
    sqnr_db,
)

FloatArray = npt.NDArray[np.float64]
WEIGHTS = 400_000


def rounded(weights: FloatArray, grid: Grid) -> FloatArray:
    if grid.kind == "float":
        steps = 2.0 ** (np.floor(np.log2(np.abs(weights))) - grid.bits)
        return np.round(weights / steps) * steps
    peak = np.abs(weights).max(1, keepdims=True)
    low, high = -peak, peak
    if grid.kind == "affine":
        low, high = weights.min(1, keepdims=True), weights.max(1, keepdims=True)
    steps = (high - low) / (2**grid.bits - 1)
    found: FloatArray = np.round((weights - low) / steps) * steps + low
    return found


@pytest.mark.parametrize(
    "name", [name for name, form in FORMATS.items() if form.grid and form.grid.bits <= 8]
)
def test_the_formula_is_what_rounding_does(name: str) -> None:
    grid = FORMATS[name].grid
    assert grid is not None
    columns = max(1, grid.group)
    weights = np.random.default_rng(0).standard_normal((max(100, WEIGHTS // columns), columns))
    noise = ((weights - rounded(weights, grid)) ** 2).mean()
    measured = 10 * np.log10((weights**2).mean() / noise)
    assert sqnr_db(grid) == pytest.approx(measured, abs=0.6 if grid.bits == 2 else 0.35)


def test_a_bit_is_6_db_and_smaller_groups_and_both_ends_make_less_noise() -> None:
    assert pytest.approx(6.0206, abs=1e-4) == DB_PER_BIT
    for six, five in [
        (Grid("integer", 6, 32), Grid("integer", 5, 32)),
        (Grid("affine", 6, 32), Grid("affine", 5, 32)),
    ]:
        assert sqnr_db(six) - sqnr_db(five) == pytest.approx(20 * np.log10(63 / 31))
    assert sqnr_db(Grid("float", 3)) - sqnr_db(Grid("float", 2)) == pytest.approx(DB_PER_BIT)
    assert sqnr_db(Grid("integer", 4, 32)) > sqnr_db(Grid("integer", 4, 128))
    assert sqnr_db(Grid("affine", 4, 32)) > sqnr_db(Grid("integer", 4, 32))
    assert noise_bits(Grid("integer", 8, 4096)) == pytest.approx(6.85, abs=0.02)


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_exceeds_the_bound_of_its_bits(name: str) -> None:
    """The rate-distortion bound of normal weights, scales and zeros counted as bits."""
    form = FORMATS[name]
    if form.grid is None:
        pytest.skip("codebooks have no formula, only the bound")
    assert sqnr_db(form.grid) < most_sqnr_db(8 * form.weight_bytes)
