"""The frontier of a grid: its panels and its conclusion."""

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.plan.frontier import conclusion, panels
from tests.support.grid_frames import grid_frame


@pytest.mark.parametrize(
    ("count", "sizes", "first"),
    [(0, [0], ""), (3, [3], ""), (6, [6], ""), (7, [4, 3], "1 to 4"), (12, [6, 6], "1 to 6"),
     (56, [6, 5, 6, 5, 6, 6, 5, 6, 5, 6], "1 to 6")],
)  # fmt: skip
def test_a_panel_has_six_series_at_most(count: int, sizes: list[int], first: str) -> None:
    series = [str(number) for number in range(1, count + 1)]
    groups = panels(series)
    assert [len(names) for names in groups.values()] == sizes
    assert next(iter(groups)) == first
    assert [name for names in groups.values() for name in names] == series


def test_the_conclusion_names_the_best_point_or_the_nearest() -> None:
    assert conclusion(grid_frame(), 0.99).startswith(
        "Best: 4 sequences at 2 requests/s, with 1.9 requests/s per replica and 40 tokens/s"
    )
    missed = grid_frame().assign(slo_attainment=[0.1, 0.2, 0.4, 0.3])
    assert "nearest is 8 sequences at 1 requests/s, with 40.0 %" in conclusion(missed, 0.99)
    assert "could be simulated" in conclusion(missed.assign(slo_attainment=float("nan")), 0.99)
