"""The conclusion from the frontier of a grid."""

from servetwin.app.reports.sweep import conclusion
from tests.support.grid_frames import grid_frame


def test_the_conclusion_names_the_best_point_or_the_nearest() -> None:
    assert conclusion(grid_frame(), 0.99).startswith(
        "Best: 4 sequences at 2 requests/s, with 1.9 requests/s per replica and 40 tokens/s"
    )
    missed = grid_frame().assign(slo_attainment=[0.1, 0.2, 0.4, 0.3])
    assert "nearest is 8 sequences at 1 requests/s, with 40.0 %" in conclusion(missed, 0.99)
    assert "could be simulated" in conclusion(missed.assign(slo_attainment=float("nan")), 0.99)
