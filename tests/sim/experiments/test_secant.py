"""The rate of a crossing: few looks on a curve, halving at a jump, and never above the most."""

from math import inf, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.experiments.search import crossing_rate


@given(
    truth=st.floats(0.5, 2.0),
    power=st.floats(0.7, 4.0),
    expected=st.floats(0.7, 4.0),
)
def test_a_power_law_is_found(truth: float, power: float, expected: float) -> None:
    looks: list[float] = []

    def excess(rate: float) -> float:
        looks.append(rate)
        return power * log(rate / truth)

    assert crossing_rate(excess, 1.0, expected, 10.0) == pytest.approx(truth, rel=0.03)
    assert len(looks) <= 8


def test_two_looks_are_enough_where_the_slope_is_right() -> None:
    looks: list[float] = []

    def excess(rate: float) -> float:
        looks.append(rate)
        return log(rate / 1.2)

    assert crossing_rate(excess, 1.0, 1.0, 10.0) == pytest.approx(1.2)
    assert len(looks) == 2


@pytest.mark.parametrize("jump", [0.6, 0.97, 1.04, 1.7])
@pytest.mark.parametrize("above", [0.1, inf])
def test_a_jump_is_found(jump: float, above: float) -> None:
    found = crossing_rate(lambda rate: -0.5 if rate < jump else above, 1.0, 1.0, 10.0)
    assert found == pytest.approx(jump, rel=0.12)


def test_a_target_that_holds_everywhere_ends_at_the_most() -> None:
    assert crossing_rate(lambda _: -inf, 1.0, 1.0, 1.5) == pytest.approx(1.5)
