"""Interpolation: between points, beyond them, and how sure each time is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.step_times.tables.interpolate import LEVELS, Curve, Surface

grids = st.lists(
    st.tuples(st.integers(0, 5000), st.floats(1e-6, 10)), min_size=2, unique_by=lambda p: p[0]
).map(lambda points: Curve(*np.array(sorted(points), float).T))


@given(grids, st.floats(0, 10_000))
def test_a_time_stays_between_its_neighbours_and_never_falls_beyond_the_last(
    curve: Curve, x: float
) -> None:
    (time_s,) = curve(np.array([x]))
    rounding = 1e-12 * curve.times_s.max()
    place = int(np.searchsorted(curve.x, x))
    around = curve.times_s[max(place - 1, 0) : place + 1]
    assert time_s >= max(around.min() - rounding, 0.0)
    assert time_s <= around.max() + rounding or place == len(curve.x)


@given(grids, st.floats(0, 10_000), st.floats(0, 10_000))
def test_where_the_table_rises_so_do_the_times(curve: Curve, x: float, y: float) -> None:
    rising = Curve(curve.x, np.sort(curve.times_s))
    low, high = rising(np.sort([x, y]))
    assert low <= high + 1e-12 * rising.times_s.max()


@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.integers(0, 999), st.floats(1e-6, 1)),
        min_size=1,
        unique_by=lambda p: p[:2],
    ),
    st.integers(1, 200),
    st.floats(0, 3000),
)
def test_a_surface_of_any_points_has_positive_times_everywhere(
    points: list[tuple[int, int, float]], u: int, v: float
) -> None:
    surface = Surface(*np.array(points, float).T)
    assert 0 < surface.section(u)(np.array([v]))[0] < np.inf


def test_extrapolation_follows_the_last_octave_and_not_the_last_two_points() -> None:
    x = np.arange(1.0, 1025.0)
    times_s = 1 + x
    times_s[-2] += 20  # a disturbed point: the last segment falls
    assert Curve(x, times_s)(np.array([2048.0])) == pytest.approx([2049.0])
    surface = Surface(x, np.zeros(1024), times_s)
    assert surface.section(2048.0)(np.zeros(1)) == pytest.approx([2049.0])


def test_beyond_the_last_size_times_do_not_fall_although_they_fell_before() -> None:
    falling = Surface(np.array([1.0, 2.0, 4.0]), np.zeros(3), np.array([3.0, 2.0, 1.0]))
    assert falling.section(100.0)(np.zeros(1)) == pytest.approx([1.0])


def test_below_the_first_point_times_are_those_of_the_first() -> None:
    curve = Curve(np.array([10.0, 20.0]), np.array([1.0, 2.0]))
    assert curve(np.array([0.0, 9.0, 10.0])) == pytest.approx([1, 1, 1])
    surface = Surface(np.array([4.0, 8.0]), np.zeros(2), np.array([1.0, 2.0]))
    assert surface.section(1.0)(np.zeros(1)) == pytest.approx([1.0])


def test_between_two_sizes_a_time_is_interpolated_where_both_were_measured_around_it() -> None:
    """Contexts 10 to 100 at batch 1, and 0 to 50 at batch 3."""
    surface = Surface(np.array([1.0, 1, 3, 3]), np.array([10.0, 100, 0, 50]), np.ones(4))
    contexts = np.array([5.0, 10, 50, 60])
    levels = [LEVELS[level] for level in surface.levels(np.full(4, 2.0), contexts)]
    assert levels == ["extrapolated", "interpolated", "interpolated", "extrapolated"]
    swapped = Surface(np.array([1.0, 1, 3, 3]), np.array([0.0, 50, 10, 100]), np.ones(4))
    assert swapped.levels(np.full(4, 2.0), contexts).tolist() == [2, 1, 1, 2]
