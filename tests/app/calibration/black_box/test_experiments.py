"""What experiments count, and the roundest number of an interval."""

import pytest

from servetwin.app.calibration.black_box.experiments import (
    at_once,
    most_held,
    roundest,
    waited_for_others,
)
from servetwin.sim.step_times.black_box_steps import ObservedRequest


@pytest.mark.parametrize(
    ("low", "high", "value"),
    [
        (236, 257, 256), (440.2, 513, 512), (95, 105, 96), (97, 100, 98), (3.2, 4.5, 4),
        (5.5, 6.5, 6),
    ],
)  # fmt: skip
def test_the_roundest_number(low: float, high: float, value: int) -> None:
    assert roundest(low, high) == value


def test_counts_of_what_ran() -> None:
    a, b = ObservedRequest(0.0, 10, (1.0, 2.0, 3.0)), ObservedRequest(0.0, 20, (2.5, 4.0))
    late = ObservedRequest(0.0, 5, (3.5,))
    assert at_once([a, b]) == 2
    assert most_held([a, b]) == 10 + 1 + 20
    assert not waited_for_others([a, b])
    assert waited_for_others([a, b, late])
    assert at_once([ObservedRequest(0.0, 5, ())]) == 0
