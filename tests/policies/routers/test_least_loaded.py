"""The least loaded replica is that of a search through all, whatever has changed since."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.routers.least_loaded import LeastLoaded
from servetwin.policies.routers.replica_loads import ReplicaLoads


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
    replicas = ReplicaLoads(speeds)
    for place, load in enumerate(loads):
        replicas.sent(place, load, 0.0)
    least = LeastLoaded(replicas, replicas.tokens)
    assert [least.choose(0.0, own) for _ in expected] == expected


class Search:
    """Looks at every replica, in turn from the one after the last choice."""

    def __init__(self, replicas: ReplicaLoads) -> None:
        self._speeds, self._next = replicas.speeds, 0

    def choose(self, loads: list[int], own: int) -> int:
        count = len(loads)
        costs = [(load + own) / speed for load, speed in zip(loads, self._speeds, strict=True)]
        turn = range(self._next, self._next + count)
        place = min(turn, key=lambda place: costs[place % count]) % count
        self._next = place + 1
        return place


@given(
    speeds=st.lists(st.sampled_from([1.0, 1.0, 2.0, 0.3]), min_size=1, max_size=150),
    sent=st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 1.5]), st.integers(1, 4), st.booleans()), max_size=80
    ),
    staleness_s=st.sampled_from([0.0, 0.0, 1.0]),
)
def test_choices_are_those_of_a_search_through_all(
    speeds: list[float], sent: list[tuple[float, int, bool]], staleness_s: float
) -> None:
    replicas = ReplicaLoads(speeds, staleness_s)
    searches = [Search(replicas), Search(replicas)]
    quick = [LeastLoaded(replicas, read) for read in (replicas.requests, replicas.tokens)]
    now_s, open_requests = 0.0, list[tuple[int, int]]()
    for number, (gap_s, tokens, ends) in enumerate(sent):
        now_s += gap_s
        requests = list(replicas.requests(now_s))
        assert quick[0].range(now_s) == (min(requests), max(requests))
        by_requests = quick[0].choose(now_s, 1)
        assert by_requests == searches[0].choose(requests, 1)
        by_tokens = quick[1].choose(now_s, tokens)
        assert by_tokens == searches[1].choose(list(replicas.tokens(now_s)), tokens)
        place = by_tokens if number % 2 else by_requests
        replicas.sent(place, tokens, now_s)
        open_requests.append((place, tokens))
        if ends:
            replicas.ended(*open_requests.pop(7 * number % len(open_requests)), now_s)
