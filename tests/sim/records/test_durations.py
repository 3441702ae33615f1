"""The unit in which durations are shown."""

import math

import pytest

from servetwin.sim.records.metrics import duration, duration_unit


@pytest.mark.parametrize(
    ("durations_s", "unit"),
    [
        ([0.3], "ms"), ([9.999], "ms"), ([10.0], "s"), ([0.3, 305.251], "s"), ([-20.0, 1.0], "s"),
        ([], "ms"), ([None, math.nan, 0.5], "ms"), ([None, 12.0], "s"),
    ],
)  # fmt: skip
def test_the_longest_of_a_row_decides_its_unit(durations_s: list[float | None], unit: str) -> None:
    assert duration_unit(iter(durations_s)) == (unit, {"ms": 1000.0, "s": 1.0}[unit])


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.5123, "512.3 ms"), (5.0, "5000 ms"), (13.991, "13.99 s"), (305.251, "305.3 s"),
        (0.0, "0 ms"), (4321.0, "4321 s"), (43_210.0, "43210 s"), (None, "-"), (math.nan, "-"),
    ],
)  # fmt: skip
def test_a_single_duration_has_its_unit_behind_it(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said
