"""The length of blocks: 1 where nothing depends, and near the best one of a known dependence."""

import numpy as np
import pytest

from servetwin.workloads.generators.resampled import block_length


def autoregressive(share: float, count: int, seed: int) -> list[float]:
    values, rng = [0.0], np.random.default_rng(seed)
    for noise in rng.normal(size=count - 1):
        values.append(share * values[-1] + noise)
    return values


def test_what_does_not_depend_has_blocks_of_one() -> None:
    lengths = [
        block_length(np.random.default_rng(seed).exponential(size=1000)) for seed in range(20)
    ]
    assert sorted(lengths)[:18] == [1] * 18
    assert block_length([3.0] * 100) == block_length([1.0, 2.0]) == block_length([]) == 1


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_the_length_of_an_autoregressive_series_is_near_the_best(share: float) -> None:
    """For AR(1) the sums are known: G = 2 r / (1 - r)^2 / (1 - r^2), g = 1 / (1 - r)^2."""
    count = 4000
    slope, level = 2 * share / (1 - share) ** 2 / (1 - share**2), 1 / (1 - share) ** 2
    best = (1.5 * (slope / level) ** 2 * count) ** (1 / 3)
    lengths = [block_length(autoregressive(share, count, seed)) for seed in range(10)]
    assert np.median(lengths) == pytest.approx(best, rel=0.25)


def test_a_block_leaves_others_to_draw_from() -> None:
    assert block_length(np.arange(100.0)) <= 34
