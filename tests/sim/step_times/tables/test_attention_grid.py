"""The attention grid: places that were not measured."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.step_times.tables.attention_grid import AttentionGrid
from tests.support.layer_bundles import CHUNKS, CONTEXTS, DECODES, STARTS, attention_us

PLACES = [
    (rows, start, decodes, context)
    for rows, start, decodes, context in product(CHUNKS, STARTS, DECODES, CONTEXTS)
    if (rows or decodes) and (rows or not start) and (bool(decodes) == bool(context))
]


def grid_of(places: Sequence[tuple[int, ...]]) -> AttentionGrid:
    columns = np.array(places, dtype=float).T
    return AttentionGrid(tuple(columns), np.array([attention_us(*place) for place in places]))


@given(st.floats(0, 2048), st.floats(0, 4096), st.floats(1, 256), st.floats(256, 4096))
def test_times_that_are_linear_along_every_axis_are_exact(
    rows: float, start: float, decodes: float, context: float
) -> None:
    grid = grid_of(PLACES)
    start = start if rows >= 64 else 0.0
    rows = rows if rows >= 64 else 0.0
    (found,) = grid(*(np.array([x]) for x in (rows, start, decodes, context)))
    assert found == pytest.approx(attention_us(rows, start, decodes, context), rel=1e-6)


def test_a_hole_is_filled_from_both_sides_and_an_edge_goes_on() -> None:
    inner = [p for p in PLACES if not (p[2] == 8 and p[3] == 1024)]
    assert np.allclose(grid_of(inner).grid, grid_of(PLACES).grid)
    edge = [p for p in PLACES if not (p[2] == 256 and p[3] == 4096)]
    assert np.allclose(grid_of(edge).grid, grid_of(PLACES).grid)


def test_beyond_the_last_point_time_goes_on_and_never_falls() -> None:
    grid = grid_of(PLACES)
    (beyond,) = grid(*(np.array([x]) for x in (0.0, 0.0, 512.0, 8192.0)))
    (last,) = grid(*(np.array([x]) for x in (0.0, 0.0, 256.0, 4096.0)))
    assert beyond > 2 * last
    falling = AttentionGrid(
        (np.zeros(3), np.zeros(3), np.ones(3), np.array([1.0, 2.0, 3.0])), np.array([3.0, 2.0, 1.0])
    )
    (far,) = falling(*(np.array([x]) for x in (0.0, 0.0, 1.0, 100.0)))
    assert far == 1.0
