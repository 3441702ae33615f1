"""A table of loads finds what a look at all of them finds, and looks at few."""

from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.routers.least_loaded import LoadTable


@given(
    count=st.sampled_from([1, 2, 63, 64, 65, 200, 500]),
    changes=st.lists(st.tuples(st.integers(0, 499), st.integers(0, 3)), max_size=60),
    first=st.integers(0, 3),
    start=st.integers(0, 499),
)
def test_the_next_least_is_that_of_a_search_through_all(
    count: int, changes: list[tuple[int, int]], first: int, start: int
) -> None:
    loads = [first] * count
    table = LoadTable(loads)
    for place, load in changes:
        loads[place % count] = load
        table.change(place % count, load)
        assert table.least() == min(loads)
    turn = [(start + step) % count for step in range(count)]
    assert table.next_least(start % count) == min(turn, key=lambda place: loads[place])


class Counted(int):
    """A load that counts how often loads are compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) > int(other)

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def comparisons(replicas: int) -> float:
    """Return the comparisons of a request: sent, ended, and one choice."""
    table, requests = LoadTable(Counted(1) for _ in range(replicas)), 300
    Counted.compared = 0
    for number in range(requests):
        place = table.next_least(7 * number % replicas)
        table.change(place, Counted(2))
        table.change(11 * number % replicas, Counted(1))
    return Counted.compared / requests


def test_a_request_compares_about_the_root_of_the_loads() -> None:
    assert comparisons(10_000) < 6 * 100
    assert comparisons(100_000) < 6 * 317
