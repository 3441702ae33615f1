"""Levels between the two ends of a sweep."""

import pytest

from servetwin.loadtest.sweep.between import rates_between, users_between


def test_rates_are_at_equal_distances_inside() -> None:
    assert rates_between(1.0, 5.0, 3) == pytest.approx([2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("most", "count", "users"),
    [(9.0, 4, [3, 5, 7, 9]), (3.2, 6, [2, 3]), (0.4, 2, [2]), (100.0, 1, [100])],
)
def test_users_are_whole_and_differ(most: float, count: int, users: list[int]) -> None:
    assert users_between(most, count) == users
