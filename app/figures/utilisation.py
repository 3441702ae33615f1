"""The error of a prediction at low and at high load."""

import numpy as np
import pandas as pd

from app.figures.canvas import Figure, canvas
from app.figures.error_marks import NOISE, ZERO_LINE, bars_around_zero, error_points
from app.text.metric_labels import METRICS


def error_per_band(bands: pd.DataFrame, metric: str) -> Figure:
    """A point per band of requests in flight, with the spread of its error, on its noise floor.

    Columns: ``least`` and ``most`` requests in flight, ``requests``, and relative to what was
    measured ``error``, ``low``, ``high``, ``noise`` (undefined where nothing was repeated).
    """
    label = METRICS[metric].label
    names = [
        f"{_range(least, most)}<br>{count:.0f} requests"
        for least, most, count in bands[["least", "most", "requests"]].values
    ]
    figure = canvas(
        "in flight on arrival, requests", f"error of mean {label}, %", _alt(bands, label)
    )
    half = 100 * bands["noise"].to_numpy(float)
    figure.add_bar(
        x=names, width=0.5, name="noise floor",
        hovertemplate="noise floor ± %{customdata:.3g} %<extra></extra>",
        **bars_around_zero("y", half, NOISE),
    )  # fmt: skip
    error, low, high = (100 * bands[column].to_numpy(float) for column in ("error", "low", "high"))
    figure.add_scatter(
        x=names,
        name="error, 90 % interval",
        hovertemplate="error %{y:+.3g} %<extra></extra>",
        **error_points("y", error, low, high),
    )
    figure.add_hline(y=0, line=ZERO_LINE)
    figure.update_xaxes(type="category")
    figure.update_yaxes(ticksuffix=" %", zeroline=False, rangemode="normal")
    return figure


def _range(least: float, most: float) -> str:
    return f"{least:.3g}" if least == most else f"{least:.3g} to {most:.3g}"


def _alt(bands: pd.DataFrame, label: str) -> str:
    known = bands[np.isfinite(bands["error"])]
    said = [
        f"{_range(least, most)}: {error:+.1%}"
        for least, most, error in known[["least", "most", "error"]].values
    ]
    return f"Error of mean {label} by requests in flight: {'; '.join(said) or 'not known'}."
