"""Servers at several loads: the rates of the grid, and up to which of them the SLO holds."""

import pandas as pd
import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from servetwin.app.dashboard.load_grid import SHARES, limits_of_load, rates_up_to


@pytest.mark.parametrize(
    ("saturation_per_s", "first", "last", "count"),
    [(40.4, 4.0, 46.0, len(SHARES)), (1e6, 200.0, 200.0, 1), (0.01, 0.5, 0.5, 1)],
)
def test_rates_end_beyond_saturation_and_are_ones_that_the_control_takes(
    saturation_per_s: float, first: float, last: float, count: int
) -> None:
    rates = rates_up_to(saturation_per_s)
    assert (rates[0], rates[-1], len(rates)) == (first, last, count)
    assert rates == sorted(rates)


def test_the_limit_of_the_load_is_the_highest_up_to_which_every_one_holds() -> None:
    points = pd.DataFrame(
        {
            "series": ["a"] * 3 + ["b"] * 3 + ["c"] * 3,
            "rate": [10.0, 20.0, 40.0] * 3,
            "slo_attainment": [1.0, 0.98, 1.0, 1.0, 0.995, 0.99, 0.5, 0.4, 0.3],
        }
    )
    assert limits_of_load(points, 0.99, 5.0) == [
        "Up to 10 requests/s a meets the SLO (at 20 no longer); today's load is 50 % of that.",
        "Up to 40 requests/s b meets the SLO (more was not tried); today's load is 12.5 % of that.",
        "At 10 requests/s already, c misses the SLO.",
    ]
