"""Whole numbers by first position: each computed once, however they are asked for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.step_times.roofline.affine_step_time import ByStart


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.lists(st.integers(0, 5), max_size=20)), max_size=9)
)
def test_values_are_those_of_the_function_and_each_is_computed_once(
    asked: list[tuple[int, list[int]]],
) -> None:
    computed: list[int] = []

    def cube(start: int) -> int:
        computed.append(start)
        return start**3

    by_start = ByStart(cube)
    for base, gains in asked:
        way = np.cumsum(np.array(gains, np.int64))
        assert by_start(base, way).tolist() == [(base + tokens) ** 3 for tokens in way.tolist()]
        assert by_start.at(base) == base**3
    assert len(computed) == len(set(computed))
