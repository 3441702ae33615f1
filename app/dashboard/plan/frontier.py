"""Throughput of a replica against the speed for a user, over the points of a grid."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil

import pandas as pd

from servetwin.app.dashboard.formatting import page_text, three_digits
from servetwin.sim.experiments import sweep

Y = sweep.GOODPUT
Y_TITLE = "goodput per replica, requests/s"
MOST_TOGETHER = 6
"""Series in one panel: the first six looks differ for every eye."""


def panels(series: Sequence[str]) -> dict[str, list[str]]:
    """Return the series of each panel by its title, six at most and as equal as can be."""
    count = ceil(len(series) / MOST_TOGETHER)
    if count <= 1:
        return {"": list(series)}
    edges = [round(place * len(series) / count) for place in range(count + 1)]
    parts = [list(series[start:end]) for start, end in pairwise(edges)]
    return {f"{part[0]} to {part[-1]}": part for part in parts}


def conclusion(points: pd.DataFrame, share: float) -> str:
    """Return one sentence on the best point, or on the nearest where none keeps the SLO."""
    best = sweep.best_point(points, Y, share)
    if best is not None:
        row = points.loc[[best]].iloc[0]
        return page_text(
            "frontier.best", label=row["label"], y=three_digits(row[Y]),
            unit=Y_TITLE.rpartition(", ")[2], speed=three_digits(row[sweep.INTERACTIVITY]),
            share=100 * row["slo_attainment"],
        )  # fmt: skip
    tried = points.dropna(subset=["slo_attainment"])
    if len(tried):
        row = tried.iloc[int(tried["slo_attainment"].argmax())]
        label, attained = row["label"], 100 * row["slo_attainment"]
        return page_text("frontier.nearest", wanted=100 * share, label=label, share=attained)
    return "No point could be simulated."
