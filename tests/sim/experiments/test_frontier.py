"""Fronts and best points of a grid."""

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.experiments.sweep import (
    GOODPUT,
    INTERACTIVITY,
    best_point,
    on_front,
)

VALUES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


@given(VALUES)
def test_the_front_is_what_nothing_beats(values: list[tuple[int, int]]) -> None:
    points = pd.DataFrame(values, columns=["x", "y"], dtype=float)
    expected = [not any(p[0] >= v[0] and p[1] >= v[1] and p != v for p in values) for v in values]
    assert on_front(points, "x", "y").tolist() == expected


def points_frame(**columns: Any) -> pd.DataFrame:
    frame = pd.DataFrame({INTERACTIVITY: [50.0, 20.0, 10.0], GOODPUT: [1.0, 3.0, 4.0], **columns})
    return frame.assign(slo_attainment=[1.0, 0.995, 0.5])


def test_the_best_point_keeps_the_slo() -> None:
    assert best_point(points_frame(), GOODPUT, 0.99) == 1
    assert best_point(points_frame(), GOODPUT, 0.999) == 0
    assert best_point(points_frame(), GOODPUT, 0.4) == 2
    assert best_point(points_frame().assign(slo_attainment=0.1), GOODPUT, 0.99) is None


def test_undefined_points_are_nowhere() -> None:
    points = points_frame().assign(**{INTERACTIVITY: [np.nan, 20.0, 10.0]})
    assert on_front(points, INTERACTIVITY, GOODPUT).tolist() == [False, True, True]
