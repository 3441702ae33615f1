"""The search on queues whose knee is known: where it ends, and how often its interval is right.

A request of an M/M/1 queue of rate mu stays longer than t with chance exp(-(mu - lambda) t), so the
share wanted is held up to lambda = mu + ln(1 - wanted) / t.
"""

from collections.abc import Callable
from math import log

import numpy as np
import pytest

from servetwin.loadtest.sweep.attainment import Attainment, attainment_of
from servetwin.loadtest.sweep.knee import Knee, RatedLevel, find_knee, held
from servetwin.loadtest.sweep.search import END_WIDTHS, KneeSearch

MU_PER_S = 10.0
WANTED = 0.95
WARM_UP = 4000
MOST_LEVELS = 40

Serve = Callable[[float], Attainment]


def stays_s(rate_per_s: float, requests: int, rng: np.random.Generator) -> np.ndarray:
    """Waiting and service times of a settled M/M/1 queue, by Lindley's recursion."""
    count = requests + WARM_UP
    services_s = rng.exponential(1 / MU_PER_S, count)
    gaps_s = rng.exponential(1 / rate_per_s, count)
    walk = np.concatenate([[0.0], np.cumsum(services_s[:-1] - gaps_s[1:])])
    return (walk - np.minimum.accumulate(walk) + services_s)[WARM_UP:]


def searched(serve: Serve, requests: int, precision: float = 0.02) -> tuple[Knee, list[RatedLevel]]:
    search = KneeSearch(WANTED, 1.0, MU_PER_S, precision, requests)
    levels: list[RatedLevel] = []
    while (rate_per_s := search.next_rate_per_s(levels)) is not None:
        assert len(levels) < MOST_LEVELS
        levels.append(RatedLevel(rate_per_s, serve(rate_per_s)))
    return find_knee(levels, WANTED), levels


def in_queue(knee_per_s: float, requests: int, seed: int) -> tuple[Knee, list[RatedLevel]]:
    limit_s = -log(1 - WANTED) / (MU_PER_S - knee_per_s)
    rng = np.random.default_rng(seed)
    return searched(
        lambda rate_per_s: attainment_of(stays_s(rate_per_s, requests, rng) / limit_s), requests
    )


@pytest.mark.parametrize("first_seed", [0, 1000])
@pytest.mark.parametrize("knee_per_s", [5.0, 7.0, 8.5])
def test_nine_of_ten_intervals_hold_the_knee_of_a_queue(knee_per_s: float, first_seed: int) -> None:
    """Of 200 searches; 3.3 % more may miss by chance (the 95 % point of their number)."""
    found = [in_queue(knee_per_s, 1000, seed)[0] for seed in range(first_seed, first_seed + 200)]
    inside = [(k.low_per_s or 0) <= knee_per_s <= (k.high_per_s or MU_PER_S) for k in found]
    assert sum(inside) >= 200 * (0.9 - 0.033)
    rates = np.array([knee.rate_per_s or MU_PER_S for knee in found])
    assert abs(rates.mean() / knee_per_s - 1) < 0.05


def test_a_longer_level_finds_the_knee_more_closely() -> None:
    off = {}
    for requests in (500, 8000):
        rates = [in_queue(6.0, requests, seed)[0].rate_per_s or MU_PER_S for seed in range(40)]
        off[requests] = float(np.sqrt(np.mean((np.array(rates) / 6.0 - 1) ** 2)))
    assert off[8000] < off[500] / 2
    assert off[8000] < 0.05


def exactly(knee_per_s: float) -> Serve:
    """A server without chance, whose share falls through the one wanted at the knee."""

    def serve(rate_per_s: float) -> Attainment:
        share = min(1.0, max(0.0, WANTED - 0.5 * log(rate_per_s / knee_per_s)))
        return Attainment(share, max(0.0, share - 0.03), min(1.0, share + 0.03), 1000, 1000.0)

    return serve


@pytest.mark.parametrize("knee_per_s", [0.9, 1.5, 3.0, 4.9, 5.1, 9.5])
@pytest.mark.parametrize("precision", [0.02, 0.1])
def test_without_chance_every_bracket_ends_narrow(knee_per_s: float, precision: float) -> None:
    found, levels = searched(exactly(knee_per_s), 1000, precision)
    rates = [level.rate_per_s for level in levels]
    assert len(set(rates)) == len(rates)
    assert all(1.0 <= rate <= MU_PER_S for rate in rates)
    if knee_per_s < 1.0:
        assert found.rate_per_s is None
        return
    assert found.rate_per_s == pytest.approx(knee_per_s, rel=precision)
    bracket = held(levels, WANTED)
    assert (bracket.above or 0) <= (bracket.below or 0) * (1 + precision)
    ends = 1 + END_WIDTHS * precision
    if knee_per_s > 1.2 and found.low_per_s:
        assert knee_per_s * 0.94 / ends < found.low_per_s < knee_per_s
    if found.high_per_s:
        assert knee_per_s < found.high_per_s < knee_per_s * 1.07 * ends


def test_a_faster_server_has_a_higher_knee() -> None:
    knees = [searched(exactly(knee), 1000)[0].rate_per_s or 0.0 for knee in (2.0, 2.2, 4.0, 8.0)]
    assert knees == sorted(knees)
    assert len(set(knees)) == len(knees)


def test_it_begins_at_half_of_saturation_and_never_goes_beyond_it() -> None:
    _, levels = searched(exactly(1000.0), 1000)
    assert [level.rate_per_s for level in levels] == [5.0, 10.0]


def test_levels_too_small_to_prove_the_share_are_not_sought() -> None:
    assert not KneeSearch(0.99, 1.0, 10.0, 0.02, 300).can_prove
    assert KneeSearch(0.99, 1.0, 10.0, 0.02, 400).can_prove
    lowest = [
        min(level.rate_per_s for level in searched(never_sure, requests)[1])
        for requests in (40, 400)
    ]
    assert lowest == [2.5, 1.0]


def never_sure(rate_per_s: float) -> Attainment:
    """A server with a knee at 4/s, whose levels prove nothing."""
    share = exactly(4.0)(rate_per_s).share
    return Attainment(share, 0.0, share + 0.01, 40, 40.0)
