"""The rates that a grid begins with."""

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from servetwin.app.dashboard.grid import rates_up_to
from servetwin.app.dashboard.jobs.simulated_items import parse_rates


@pytest.mark.parametrize(
    ("saturation_per_s", "first", "last", "count"),
    [(40.4, 4.0, 40.0, 8), (7.1, 0.71, 7.1, 8), (1e6, 200.0, 200.0, 1), (0.01, 0.5, 0.5, 1)],
)
def test_rates_end_at_saturation_and_are_ones_that_a_grid_takes(
    saturation_per_s: float, first: float, last: float, count: int
) -> None:
    rates = parse_rates(rates_up_to(saturation_per_s))
    assert (rates[0], rates[-1], len(rates)) == (first, last, count)
    assert rates == sorted(rates)
