"""Points of a grid with figures, as the page of policies has them."""

from collections.abc import Sequence
from itertools import product

import pandas as pd

from servetwin.app.dashboard.jobs.simulated_items import points_frame
from servetwin.sim.experiments.sweep import GOODPUT, INTERACTIVITY, PROBLEM, on_front

FOUR = ((60.0, 1.0, 1.0), (40.0, 1.9, 0.992), (60.0, 1.0, 1.0), (30.0, 2.0, 0.7))
"""(Interactivity, goodput, share within the SLO) of two series at two rates."""


def grid_frame(
    series: Sequence[str] = ("4 sequences", "8 sequences"),
    figures: Sequence[tuple[float, float, float]] = FOUR,
) -> pd.DataFrame:
    """Return each series at 1 and 2 requests per second, with what is on the front."""
    points = [
        {"series": name, "rate": rate, "label": f"{name} at {rate} requests/s"}
        for name, rate in product(series, (1, 2))
    ]
    rows = {
        place: {INTERACTIVITY: x, GOODPUT: y, "slo_attainment": a, "ttft_s_p99": 0.1, PROBLEM: ""}
        for place, (x, y, a) in enumerate(figures)
    }
    frame = points_frame(points, rows)
    return frame.assign(on_front=on_front(frame, INTERACTIVITY, GOODPUT))
