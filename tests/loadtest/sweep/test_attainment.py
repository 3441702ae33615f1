"""The share of a level within the SLO: counts, intervals, and what correlation takes away."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, binom, t

from servetwin.loadtest.sweep.attainment import (
    attainment,
    attainment_of,
    binomial_interval,
    effective_requests,
    least_requests,
)
from servetwin.sim.records.metrics import SLO

LIMITS = SLO(ttft_s=0.5, tpot_s=0.05)


def requests_of(ttft_s: list[float], tpot_s: list[float], status: list[str]) -> pd.DataFrame:
    stamps = np.arange(len(ttft_s), dtype=float)
    return pd.DataFrame(
        {"scheduled_s": stamps, "ttft_s": ttft_s, "tpot_s": tpot_s, "e2e_s": 1.0, "status": status}
    )


def test_warm_up_and_cancelled_requests_do_not_count() -> None:
    frame = requests_of([0.1, 9.0, 9.0, 0.1], [0.01] * 4, ["finished"] * 4)
    frame["warm_up"] = [False, True, False, False]
    frame["error"] = [None, None, "cancelled_by_test", None]
    assert (attainment(frame, LIMITS).requests, attainment(frame, LIMITS).share) == (2, 1.0)


@pytest.mark.parametrize(("hits", "count"), [(0, 30), (29, 30), (30, 30), (190, 200)])
def test_the_interval_is_that_of_clopper_and_pearson(hits: int, count: int) -> None:
    low, high = binomial_interval(hits / count, count)
    assert low == pytest.approx(beta.ppf(0.025, hits, count - hits + 1) if hits else 0.0)
    assert high == pytest.approx(beta.ppf(0.975, hits + 1, count - hits) if hits < count else 1.0)


def test_the_interval_covers_a_share_of_independent_requests() -> None:
    for share in (0.5, 0.9, 0.99):
        chances = binom.pmf(np.arange(301), 300, share)
        inside = [low <= share <= high for low, high in map(_interval_of_300, range(301))]
        assert chances @ inside >= 0.95


def _interval_of_300(hits: int) -> tuple[float, float]:
    return binomial_interval(hits / 300, 300)


def test_independent_requests_count_nearly_in_full_and_copies_once() -> None:
    rng = np.random.default_rng(1)
    alone = rng.exponential(size=4000)
    copied = np.repeat(rng.exponential(size=400), 10)
    of_alone = np.mean([effective_requests(rng.permutation(alone)) for _ in range(20)])
    assert 2000 < of_alone <= 4000
    assert 200 < effective_requests(copied) < 800


def test_a_level_without_a_miss_still_hangs_together() -> None:
    """Its shares alone do not show it: they are all 1."""
    rng = np.random.default_rng(2)
    calm = np.repeat(rng.uniform(0.1, 0.9, size=20), 20)
    found = attainment_of(calm)
    assert found.share == 1.0
    assert found.effective < 60
    assert found.low < attainment_of(rng.permutation(calm)).low


def test_a_request_at_its_limit_keeps_it() -> None:
    assert attainment_of([1.0, 1.0, 1.0 + 1e-9, 0.5]).share == 0.75


def test_the_degrees_of_freedom_of_the_batches_take_their_part() -> None:
    """Requests that alternate do not hang together; 100 of them are 20 batches."""
    expected = 100 * (t.ppf(0.975, 99) / t.ppf(0.975, 19)) ** 2
    assert effective_requests(np.tile([0.1, 0.9], 50)) == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.9, 0.95, 0.99])
def test_the_least_requests_are_just_enough_to_prove_a_share(share: float) -> None:
    enough = least_requests(share)
    assert binomial_interval(1.0, enough)[0] >= share > binomial_interval(1.0, enough - 1)[0]


def test_nothing_is_known_of_no_requests() -> None:
    found = attainment_of([])
    assert (found.low, found.high) == (0.0, 1.0)


def test_requests_that_all_failed_surely_miss() -> None:
    assert attainment_of(np.full(60, np.inf)).high < 0.2
