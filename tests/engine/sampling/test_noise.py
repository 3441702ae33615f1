"""Counter-based random numbers."""

import numpy as np
import pytest
import torch

from servetwin.engine.sampling.noise import exponentials, row_bits, uniforms

CPU = torch.device("cpu")
EXPECTED_BITS = 16170678490931459222
EXPECTED_WAITS = [-2.2095694541931152, -0.5056192874908447, -0.15837928652763367]


def test_numbers_are_of_their_row_alone() -> None:
    bits = row_bits([1, 2, 3], [10, 20, 30])
    assert bits[1] == row_bits([2], [20])[0]
    together, alone = exponentials(bits, 500, CPU), exponentials(bits[1:2], 500, CPU)
    assert torch.equal(together[1], alone[0])
    assert torch.equal(together[:, :100], exponentials(bits, 100, CPU))


def test_seed_position_and_stream_each_give_other_bits() -> None:
    bits = [
        int(row_bits([seed], [position], stream)[0])
        for seed in (-1, 0, 1, 2**63 - 1, -(2**63), 2**64 - 2)
        for position in (0, 1, 2, 100_000)
        for stream in (0, 1, 2)
    ]
    assert len(set(bits)) == len(bits)


def test_the_numbers_are_the_same_on_every_machine() -> None:
    assert row_bits([42], [7]).tolist() == [EXPECTED_BITS]
    waits = exponentials(row_bits([42], [7]), 3, CPU)[0]
    assert waits.tolist() == pytest.approx(EXPECTED_WAITS, rel=1e-6)


def test_exponentials_are_negative_with_mean_one_and_their_own_law() -> None:
    from scipy.stats import kstest

    waits = -exponentials(row_bits([3] * 50, range(50)), 2000, CPU).double().numpy()
    assert waits.min() > 0
    assert waits.max() < 17
    assert kstest(waits.ravel(), "expon").pvalue > 0.001
    assert abs(np.corrcoef(waits)[0, 1:]).max() < 0.1


def test_uniforms_are_below_one_and_even() -> None:
    from scipy.stats import kstest

    values = uniforms(row_bits([9] * 20_000, range(20_000)))
    assert values.max() < 1
    assert kstest(values, "uniform").pvalue > 0.001
    assert uniforms(np.array([2**64 - 1], np.uint64))[0] == 1 - 2.0**-53
