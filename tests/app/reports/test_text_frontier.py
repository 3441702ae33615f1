"""The frontier as text."""

from typing import Any

import pandas as pd

from servetwin.app.reports.sweep import BEST, PLOT_HEIGHT, PLOT_WIDTH, scatter_lines
from servetwin.sim.experiments.sweep import GOODPUT, INTERACTIVITY


def points_frame(**columns: Any) -> pd.DataFrame:
    frame = pd.DataFrame({INTERACTIVITY: [50.0, 20.0, 10.0], GOODPUT: [1.0, 3.0, 4.0], **columns})
    return frame.assign(slo_attainment=[1.0, 0.995, 0.5])


def test_a_scatter_has_the_best_at_its_place() -> None:
    lines = scatter_lines(points_frame(), GOODPUT, 1, "requests/s")
    plot = [line.partition("|")[2] for line in lines[1 : PLOT_HEIGHT + 1]]
    assert plot[0][int(10 / 50 * PLOT_WIDTH)] == "o"
    assert plot[PLOT_HEIGHT - 1 - int(3 / 4 * PLOT_HEIGHT)].strip() == BEST
    assert scatter_lines(points_frame().iloc[:0], GOODPUT, None, "") == []
