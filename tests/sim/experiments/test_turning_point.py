"""The whole number at which a condition turns, against a look at every number."""

from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.experiments.search import TurningPoint, turning_point


@given(
    turns_at=st.integers(1, 1200),
    greatest=st.integers(1, 1000),
    guess=st.one_of(st.none(), st.integers(-5, 1100)),
)
def test_the_neighbours_are_found_from_any_guess_in_few_looks(
    turns_at: int, greatest: int, guess: int | None
) -> None:
    looks: list[int] = []

    def is_true(number: int) -> bool:
        looks.append(number)
        return number >= turns_at

    found = turning_point(is_true, 1, greatest, guess)
    above = turns_at if turns_at <= greatest else None
    below = None if turns_at == 1 else min(turns_at - 1, greatest)
    assert found == TurningPoint(below, above)
    assert all(1 <= look <= greatest for look in looks)
    assert len(looks) <= 2 + 2 * greatest.bit_length()


def test_a_precision_ends_the_search_early() -> None:
    looks: list[int] = []
    found = turning_point(lambda n: looks.append(n) or n >= 700, 1, 1024, precision=0.1)  # type: ignore[func-returns-value]
    assert found.below is not None
    assert found.above is not None
    assert found.below < 700 <= found.above <= 1.1 * found.below
    assert len(looks) < 15


def test_what_holds_again_higher_up_does_not_count() -> None:
    assert turning_point(lambda n: n in (5, 6, 9), 1, 6) == TurningPoint(4, 5)
