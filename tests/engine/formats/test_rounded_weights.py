"""Rounded weights against the theory of their formats."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.formats.rounded_weights import Int4Weight, Int8Weight, round_rows
from servetwin.sim.step_times.roofline.formats import Grid, sqnr_db

WEIGHT = torch.randn(256, 1024, generator=torch.Generator().manual_seed(0)) * 0.06


def assert_noise_is_that_of(grid: Grid, restored: torch.Tensor) -> None:
    exact, predicted = WEIGHT.double(), sqnr_db(grid)
    noise = (restored.double() - exact).square().mean()
    measured = float(10 * torch.log10(exact.square().mean() / noise))
    print(f"{grid}: {measured:.2f} dB measured, {predicted:.2f} dB by formula")  # noqa: T201
    assert abs(measured - predicted) < 0.5


def test_the_noise_of_int8_is_that_of_its_formula() -> None:
    assert_noise_is_that_of(Grid("integer", 8, WEIGHT.shape[1]), Int8Weight.of(WEIGHT).restored())


@pytest.mark.parametrize("group", [32, 64, 128])
def test_the_noise_of_int4_is_that_of_its_formula(group: int) -> None:
    assert_noise_is_that_of(Grid("affine", 4, group), Int4Weight.of(WEIGHT, group).restored())


def test_rows_are_rounded_as_int8_weights_are() -> None:
    codes, scales = round_rows(WEIGHT)
    rounded = Int8Weight.of(WEIGHT)
    assert torch.equal(codes.to(torch.int8), rounded.codes)
    assert torch.equal(scales[:, 0], rounded.scales)


def test_no_int8_weight_is_further_than_half_a_step() -> None:
    rounded = Int8Weight.of(WEIGHT)
    steps = (rounded.restored() - WEIGHT).abs() / rounded.scales[:, None]
    assert steps.max() <= 0.5001
    assert rounded.codes.abs().max() == 127


@given(inputs=st.integers(1, 70), group=st.integers(1, 40), offset=st.floats(-2, 2))
def test_no_int4_weight_is_further_than_half_a_step_and_what_bfloat16_loses(
    inputs: int, group: int, offset: float
) -> None:
    weight = torch.randn(5, inputs) + offset
    rounded = Int4Weight.of(weight, group)
    assert rounded.scales.shape == (5, -(-inputs // group))
    steps = rounded.scales.float().repeat_interleave(group, 1)[:, :inputs]
    lost = 2**-8 * (weight.abs().amax() + 15 * steps)  # the middle and the scale are bfloat16
    assert ((rounded.restored() - weight).abs() <= 0.5 * steps + lost).all()


@pytest.mark.parametrize("value", [0.0, 0.3, -0.3])
def test_equal_weights_are_kept(value: float) -> None:
    weight = torch.full((3, 64), value)
    torch.testing.assert_close(Int8Weight.of(weight).restored(), weight)
    torch.testing.assert_close(Int4Weight.of(weight, 32).restored(), weight, rtol=2**-8, atol=0)


def test_bytes_are_those_that_the_simulator_assumes() -> None:
    """A code a weight and a float32 scale an output; 0.5 + 4 / group a weight."""
    outputs, inputs = WEIGHT.shape
    assert Int8Weight.of(WEIGHT).bytes == outputs * inputs + 4 * outputs
    for group in (32, 128):
        assert Int4Weight.of(WEIGHT, group).bytes == outputs * inputs * (0.5 + 4 / group)
