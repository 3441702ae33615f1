"""The tiers of the prefix cache against the exact hit ratios of LRU caches, by enumeration."""

from itertools import permutations
from math import sqrt

import numpy as np
import pytest

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import LinearStepTime
from tests.support.checked import request
from tests.support.effort import REDUCTION
from tests.support.markov import FloatArray

# Zipf's law; each prompt has one full block of four tokens, and one token more.
SHARES = np.array([1 / rank for rank in range(1, 8)]) / sum(1 / rank for rank in range(1, 8))
STEP_S, POSITION_S, SLOWDOWN = 0.01, 0.001, 3.0
SERVER = LinearStepTime.of({"constant": STEP_S, "swapped_tokens": POSITION_S})
# The device holds the block used last, the host those used last but one, and the SSD two more.
TIERS = PolicyConfig(
    kv_tokens=8, block_tokens=4, max_model_len=8, max_seqs=1, prefix_cache=True,
    host_cache_tokens=8, far_cache_tokens=8, far_cache_slowdown=SLOWDOWN,
)  # fmt: skip


def hit_ratio(size: int) -> float:
    """Return the share of independent references that an LRU cache of this size has.

    King, Analysis of demand paging algorithms (IFIP 1971): it holds the items of an order with the
    product of the chances of each among those that are left.
    """
    total = 0.0
    for items in permutations(range(len(SHARES)), size):
        chance, left = 1.0, 1.0
        for item in items:
            chance *= SHARES[item] / left
            left -= SHARES[item]
        total += chance * (1 - left)
    return total


def test_the_hit_ratio_of_one_item_is_that_of_a_repetition() -> None:
    assert hit_ratio(1) == pytest.approx(float((SHARES**2).sum()))
    assert hit_ratio(len(SHARES)) == pytest.approx(1.0)


def tiers(seed: int) -> list[bool]:
    """Return whether hits and the time of loads are those of three LRU caches."""
    count = 20_000 // REDUCTION
    blocks = np.random.default_rng(seed).choice(len(SHARES), count, p=SHARES).tolist()
    requests = [request(str(n), float(n), 5, 1, (block + 1,)) for n, block in enumerate(blocks)]
    rows = simulate(requests, build_scheduler(TIERS), SERVER).requests
    device, host, ssd = (hit_ratio(size) for size in (1, 2, 4))
    loads_s = 4 * POSITION_S * (host - device + SLOWDOWN * (ssd - host))
    checks = [("cached_tokens", 4 * ssd), ("ttft_s", STEP_S + loads_s)]
    return [is_near(rows[name].to_numpy(float), expected) for name, expected in checks]


def is_near(values: FloatArray, expected: float) -> bool:
    """Return whether the 99 % interval of a mean, by 40 batches, contains what is expected."""
    means = values.reshape(40, -1).mean(axis=1)
    return bool(abs(means.mean() - expected) < 2.7 * float(means.std(ddof=1)) / sqrt(40))


def test_tiers_find_what_three_lru_caches_find_and_load_as_long() -> None:
    assert all(tiers(0))
