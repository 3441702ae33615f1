"""The clock of the core: stamps that add up exactly."""

from itertools import pairwise
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.core.core import CoreClock


@given(st.lists(st.integers(0, 10**15), min_size=2, max_size=20))
def test_clock_stamps_add_up_exactly(elapsed_ns: list[int]) -> None:
    with patch("time.monotonic_ns", side_effect=[0, *sorted(elapsed_ns)]):
        clock = CoreClock()
        stamps = [clock() for _ in elapsed_ns]
    total = stamps[0]
    for before, after in pairwise(stamps):
        total += after - before
    assert total == stamps[-1]


def test_clock_is_monotonic_time() -> None:
    clock = CoreClock()
    stamps = [clock() for _ in range(100)]
    assert stamps == sorted(stamps)
    assert all((stamp * 2**30).is_integer() for stamp in stamps)
