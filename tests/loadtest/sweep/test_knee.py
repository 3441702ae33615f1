"""The knee from the shares of levels: pooled, crossed, and bracketed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.sweep.attainment import Attainment, binomial_interval
from servetwin.loadtest.sweep.knee import (
    Bracket,
    RatedLevel,
    find_knee,
    held,
    monotone,
    perhaps_held,
    surely_held,
)

SHARES = st.lists(st.sampled_from([n / 100 for n in range(101)]), min_size=1, max_size=12)


def level(rate_per_s: float, share: float, count: int = 200) -> RatedLevel:
    low, high = binomial_interval(share, count)
    return RatedLevel(rate_per_s, Attainment(share, low, high, count, float(count)))


def levels_of(*shares: float) -> list[RatedLevel]:
    return [level(float(rate), share) for rate, share in enumerate(shares, start=1)]


@given(SHARES)
def test_pooled_shares_fall_with_the_rate_and_keep_their_mean(shares: list[float]) -> None:
    pooled = monotone(levels_of(*shares))
    assert pooled == sorted(pooled, reverse=True)
    assert sum(pooled) == pytest.approx(sum(shares))


@given(SHARES, st.sampled_from([0.5, 0.9, 0.95]), st.randoms())
def test_the_knee_lies_in_its_bracket_and_the_order_of_levels_is_no_matter(
    shares: list[float], wanted: float, random: object
) -> None:
    levels = levels_of(*shares)
    bracket, knee = held(levels, wanted), find_knee(levels, wanted)
    assert knee == find_knee(levels[::-1], wanted)
    if bracket.below is None or bracket.above is None:
        assert knee.rate_per_s is None
        return
    assert knee.rate_per_s is not None
    assert bracket.below - 1e-9 <= knee.rate_per_s <= bracket.above + 1e-9


@given(SHARES, st.sampled_from([0.5, 0.9, 0.95]))
def test_the_knee_lies_in_its_interval(shares: list[float], wanted: float) -> None:
    knee = find_knee(levels_of(*shares), wanted)
    if knee.rate_per_s is not None:
        assert (knee.low_per_s or 0.0) - 1e-9 <= knee.rate_per_s
        assert knee.rate_per_s <= (knee.high_per_s or 99.0) + 1e-9


@given(SHARES, st.sampled_from([0.5, 0.9, 0.95]))
def test_more_is_wanted_more_slowly(shares: list[float], wanted: float) -> None:
    strict, lax = (find_knee(levels_of(*shares), share) for share in (wanted, wanted - 0.05))
    if strict.rate_per_s and lax.rate_per_s:
        assert strict.rate_per_s <= lax.rate_per_s + 1e-9


def test_between_two_levels_the_share_is_a_line_over_the_log_of_the_rate() -> None:
    found = find_knee([level(1.0, 1.0), level(4.0, 0.8)], 0.9)
    assert found.rate_per_s == pytest.approx(2.0)
    assert find_knee([level(1.0, 0.9), level(4.0, 0.8)], 0.9).rate_per_s == pytest.approx(1.0)


def test_the_interval_ends_where_levels_are_sure() -> None:
    levels = levels_of(1.0, 1.0, 0.96, 0.93, 0.5, 0.3)
    assert surely_held(levels, 0.95) == Bracket(2.0, 3.0)
    assert perhaps_held(levels, 0.95) == Bracket(4.0, 5.0)
    found = find_knee(levels, 0.95)
    assert (found.low_per_s, found.high_per_s) == (2.0, 5.0)


def test_one_unsure_level_widens_the_interval_beyond_all_surer_ones() -> None:
    assert surely_held(levels_of(1.0, 0.95, 1.0, 0.5), 0.95).below == 1.0
    assert perhaps_held(levels_of(1.0, 0.5, 0.95, 0.5), 0.95).above == 4.0


def test_where_all_levels_agree_there_is_no_knee() -> None:
    assert find_knee(levels_of(1.0, 1.0), 0.95).rate_per_s is None
    assert find_knee(levels_of(0.1, 0.0), 0.95).rate_per_s is None
    assert find_knee([], 0.95) == find_knee([], 0.5)
