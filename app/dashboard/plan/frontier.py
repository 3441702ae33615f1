"""Throughput of a replica against the speed for a user, over the points of a grid."""

import pandas as pd

from servetwin.app.dashboard.formatting import page_text
from servetwin.app.words import short
from servetwin.sim.experiments import sweep

Y = sweep.GOODPUT
Y_TITLE = "goodput per replica, requests/s"


def conclusion(points: pd.DataFrame, share: float) -> str:
    """Return one sentence on the best point, or on the nearest where none keeps the SLO."""
    best = sweep.best_point(points, Y, share)
    if best is not None:
        row = points.loc[[best]].iloc[0]
        return page_text(
            "frontier.best", label=row["label"], y=short(row[Y]),
            unit=Y_TITLE.rpartition(", ")[2], speed=short(row[sweep.INTERACTIVITY]),
            share=100 * row["slo_attainment"],
        )  # fmt: skip
    tried = points.dropna(subset=["slo_attainment"])
    if len(tried):
        row = tried.iloc[int(tried["slo_attainment"].argmax())]
        label, attained = row["label"], 100 * row["slo_attainment"]
        return page_text("frontier.nearest", wanted=100 * share, label=label, share=attained)
    return "No point could be simulated."
