"""The reports that routers read, and the choice of the least loaded replica."""

import pytest

from servetwin.policies.routers.replica_loads import ReplicaLoads


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


def test_replicas_may_tell_their_endings_one_after_the_other() -> None:
    """The second replica ended a request before the report, the first after it."""
    loads = ReplicaLoads((1, 1), staleness_s=2.0)
    for place in (0, 1):
        loads.sent(place, 10, 0.0)
    loads.ended(0, 10, 2.5)
    loads.ended(1, 10, 1.5)
    assert list(loads.requests(3.0)) == [1, 0]
    assert list(loads.tokens(4.0)) == [0, 0]


@pytest.mark.parametrize(("staleness_s", "asked"), [(0.0, 5), (2.0, 2)])
def test_replicas_are_asked_where_a_report_is_due_and_only_there(
    staleness_s: float, asked: int
) -> None:
    loads = ReplicaLoads((1,), staleness_s)
    calls = list[float]()
    for now_s in (0.0, 1.0, 2.0, 3.5, 9.0):
        loads.before_report = lambda now_s=now_s: calls.append(now_s)
        loads.requests(now_s)
    assert len(calls) == asked


def test_a_reader_learns_the_places_of_reported_changes() -> None:
    loads = ReplicaLoads((1, 1, 1), staleness_s=2.0)
    changed = loads.changed_places()
    loads.sent(2, 10, 1.0)
    assert changed == set()
    loads.requests(2.0)
    assert changed == {2}


def test_a_reader_that_does_not_look_keeps_no_more_than_the_places() -> None:
    loads = ReplicaLoads((1, 1))
    changed = loads.changed_places()
    for _ in range(100):
        loads.sent(1, 10, 0.0)
        loads.ended(1, 10, 0.0)
    assert changed == {1}


def test_loads_move_to_the_places_of_replicas_that_stay_and_count_as_reported() -> None:
    loads = ReplicaLoads([1.0, 2.0, 3.0], staleness_s=10.0)
    for place in (0, 1, 1, 2):
        loads.sent(place, 5, 1.0)
    moved = loads.moved([-1, 2, 0], [3.0, 1.0, 2.0])
    assert list(moved.requests(2.0)) == [1, 0, 2]
    assert list(moved.tokens(2.0)) == [5, 0, 10]
    assert moved.speeds == (3.0, 1.0, 2.0)
