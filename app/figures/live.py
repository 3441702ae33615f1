"""A load test while it runs, beside its prediction."""

from collections.abc import Mapping

import pandas as pd

from app.figures.canvas import Figure, canvas, line_of, marker_of
from app.figures.palette import LIMIT_COLOUR, Look
from app.figures.sampling import as_float32, evenly
from app.text.metric_labels import METRICS

_MOST_POINTS = 1500


def live_latency(
    answers: pd.DataFrame,
    predicted: pd.DataFrame,
    metric: str,
    looks: Mapping[str, Look],
    limit_s: float | None = None,
) -> Figure:
    """Each answer so far by when it was sent; the prediction's running median as a line.

    ``looks`` has ``measured`` and ``predicted``.
    """
    shown = METRICS[metric]
    points = evenly(answers.dropna(subset=[metric]), _MOST_POINTS)
    figure = canvas("sent, s", shown.title, _alt(answers, predicted, metric))
    figure.add_scatter(
        x=as_float32(points["sent_s"]),
        y=as_float32(points[metric] * shown.factor),
        name="measured so far",
        mode="markers",
        marker=marker_of(looks["measured"]),
        hovertemplate=f"%{{y:.4g}} {shown.unit}, sent at %{{x:.4g}} s<extra>measured</extra>",
    )
    middle = _running_median(predicted, metric)
    figure.add_scatter(
        x=as_float32(middle.index.to_numpy()),
        y=as_float32(middle * shown.factor),
        name="predicted, running median",
        mode="lines",
        line=line_of(looks["predicted"]),
        hovertemplate=f"%{{y:.4g}} {shown.unit} at %{{x:.4g}} s<extra>predicted</extra>",
    )
    if limit_s is not None:
        limit = limit_s * shown.factor
        line = {"color": LIMIT_COLOUR, "dash": "dash"}
        figure.add_hline(y=limit, line=line, annotation_text=f"SLO {limit:.4g} {shown.unit}")
    return figure


def _running_median(predicted: pd.DataFrame, metric: str) -> pd.Series:
    done = predicted.dropna(subset=[metric]).sort_values("scheduled_s")
    window = max(5, len(done) // 25)
    middle: pd.Series = done[metric].rolling(window, min_periods=1, center=True).median()
    middle.index = pd.Index(done["scheduled_s"])
    return middle


def _alt(answers: pd.DataFrame, predicted: pd.DataFrame, metric: str) -> str:
    shown = METRICS[metric]
    said = f"{shown.label} of {len(answers)} answers by when they were sent."
    for name, frame in (("measured", answers), ("predicted", predicted)):
        if frame[metric].notna().any():
            said += f" {name}: median {frame[metric].median() * shown.factor:.4g} {shown.unit}."
    return said
