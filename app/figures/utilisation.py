"""The error of a prediction at low and at high load."""

import numpy as np
import pandas as pd

from app.figures.canvas import Figure, canvas
from app.figures.palette import COLOURS, LIMIT_COLOUR
from app.metric_words import METRICS

_NOISE = "rgba(128,128,128,0.45)"


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
        x=names, base=-half, y=2 * half, width=0.5, name="noise floor",
        marker={"color": _NOISE, "line": {"width": 0}}, customdata=half,
        hovertemplate="noise floor ± %{customdata:.3g} %<extra></extra>",
    )  # fmt: skip
    error = 100 * bands["error"].to_numpy(float)
    figure.add_scatter(
        x=names,
        y=error,
        mode="markers",
        name="error, 90 % interval",
        marker={"color": COLOURS[0], "size": 10, "symbol": "diamond"},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": 100 * bands["high"].to_numpy(float) - error,
            "arrayminus": error - 100 * bands["low"].to_numpy(float),
            "color": COLOURS[0],
        },
        hovertemplate="error %{y:+.3g} %<extra></extra>",
    )
    figure.add_hline(y=0, line={"color": LIMIT_COLOUR, "dash": "dash"})
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
