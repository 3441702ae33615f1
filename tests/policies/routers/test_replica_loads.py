"""The reports that routers read, and the choice of the least loaded replica."""

import pytest

from policies.routers.replica_loads import LeastLoaded, ReplicaLoads


def test_loads_are_requests_and_tokens_sent_and_not_ended() -> None:
    loads = ReplicaLoads((1, 1))
    loads.sent(0, 10, 0.0)
    loads.sent(1, 5, 0.5)
    loads.sent(1, 7, 0.5)
    loads.ended(1, 5, 1.0)
    assert len(loads) == 2
    assert list(loads.requests(1.0)) == [1, 1]
    assert list(loads.tokens(1.0)) == [10, 7]


def test_a_report_is_taken_at_each_multiple_of_the_staleness() -> None:
    loads = ReplicaLoads((1,), staleness_s=2.0)
    loads.sent(0, 10, 0.0)
    loads.sent(0, 5, 1.9)
    assert (list(loads.requests(1.9)), list(loads.tokens(1.9))) == ([0], [0])
    assert (list(loads.requests(2.0)), list(loads.tokens(2.0))) == ([2], [15])
    loads.ended(0, 10, 2.5)
    assert list(loads.tokens(3.9)) == [15]
    assert list(loads.tokens(7.0)) == [5]
    loads.sent(0, 1, 7.0)
    assert list(loads.tokens(7.9)) == [5]
    assert list(loads.tokens(8.0)) == [6]


def test_what_changes_at_the_moment_of_a_report_is_not_in_it() -> None:
    loads = ReplicaLoads((1,), staleness_s=2.0)
    loads.sent(0, 10, 1.0)
    loads.sent(0, 10, 2.0)
    assert list(loads.requests(2.0)) == [1]


@pytest.mark.parametrize(
    ("speeds", "loads", "own", "expected"),
    [
        ((1, 1, 1), [2, 1, 3], 1, [1, 1]),
        ((1, 1, 1), [2, 2, 2], 1, [0, 1, 2, 0]),
        ((2, 1), [3, 1], 1, [0, 1]),  # (3 + 1) / 2 = (1 + 1) / 1: they take turns
        ((2, 1), [3, 1], 2, [0, 0]),
        ((2, 1), [3, 0], 1, [1, 1]),
    ],
)
def test_the_least_load_for_the_speed_the_newcomer_included(
    speeds: tuple[float, ...], loads: list[int], own: int, expected: list[int]
) -> None:
    least = LeastLoaded(ReplicaLoads(speeds))
    assert [least.choose(loads, own) for _ in expected] == expected
