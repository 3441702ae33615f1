"""A prediction beside what was measured, percentile by percentile."""

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import OF_RUN, Figure, canvas, marker_of, plot, set_alt
from servetwin.app.figures.diagonal import add_diagonal
from servetwin.app.figures.palette import Looks
from servetwin.app.figures.sampling import FloatArray, Frames
from servetwin.app.reports.metric_labels import METRICS

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def predicted_against_measured(
    predicted: pd.DataFrame, measured: Frames, metric: str, looks: Looks
) -> Figure:
    """Draw percentiles of a metric, measured to the right and predicted upwards.

    On the diagonal both are equal; the band is 10 % to either side.
    """
    longest = (_percentiles(frame, metric).max() for frame in (predicted, *measured.values()))
    shown = METRICS[metric].fitting(longest)
    title = f"{shown.label}: predicted against measured, percentile by percentile"
    figure = canvas(f"measured {shown.title}", f"predicted {shown.title}", "", title)
    alt = [f"Percentiles of {shown.label}, predicted against measured."]
    tops = [0.0]
    predicted_points = _percentiles(predicted, metric) * shown.factor
    for run, frame in measured.items():
        points = _percentiles(frame, metric) * shown.factor
        mode = "markers" if len(tops) > 1 else "markers+text"
        hover = "%{text}: measured %{x:.4g}, predicted %{y:.4g} " + shown.unit + OF_RUN
        options = {
            "text": [f"p{q}" for q in PERCENTILES],
            "texttemplate": [f"p{q}" if q >= 50 else "" for q in PERCENTILES],  # others overlap
            "textposition": "top left",
            "marker": {**marker_of(looks[run]), "size": 9, "opacity": 1.0},
        }
        plot(figure, mode, run, points, predicted_points, hover, **options)
        tops += [*points, *predicted_points]
        alt.append(f"{run}: " + _median_error(predicted_points, points))
    add_diagonal(figure, 0.0, 1.05 * float(np.nanmax(tops)))
    set_alt(figure, " ".join(alt))
    return figure


def _percentiles(requests: pd.DataFrame, metric: str) -> FloatArray:
    values = requests.loc[requests["status"] == "finished", metric].dropna().to_numpy(dtype=float)
    return np.percentile(values, PERCENTILES) if len(values) else np.full(len(PERCENTILES), np.nan)


def _median_error(predicted: FloatArray, measured: FloatArray) -> str:
    middle = PERCENTILES.index(50)
    error = predicted[middle] / measured[middle] - 1 if measured[middle] else np.nan
    return f"the median is off by {100 * error:+.1f} %." if np.isfinite(error) else "no value."
