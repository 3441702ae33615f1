"""How far a prediction is off, metric by metric, beside what it may be off by."""

import numpy as np
import pandas as pd

from app.figures.canvas import Figure, canvas
from app.figures.error_marks import NOISE, ZERO_LINE, bars_around_zero, error_points

_ALLOWED = "rgba(0,119,136,0.35)"


def errors_with_intervals(errors: pd.DataFrame) -> Figure:
    """A point per metric with the predicted interval, on a bar of the noise floor and one of what
    is allowed.

    Columns: ``metric`` (its words), and in per cent of what was measured ``error``, ``low``,
    ``high`` (of the interval), ``noise`` and ``allowed``; undefined where there is none.
    """
    figure = canvas("predicted - measured, % of measured", "", _alt(errors))
    names = errors["metric"].tolist()
    for column, colour, width, said in (
        ("allowed", _ALLOWED, 0.8, "allowed"),
        ("noise", NOISE, 0.4, "noise floor"),
    ):
        half = errors[column].to_numpy(float)
        figure.add_bar(
            orientation="h", y=names, width=width, name=said,
            hovertemplate=f"{said}: ± %{{customdata:.3g}} %<extra>%{{y}}</extra>",
            **bars_around_zero("x", half, colour),
        )  # fmt: skip
    error, low, high = (errors[column].to_numpy(float) for column in ("error", "low", "high"))
    figure.add_scatter(
        y=names,
        name="error, predicted interval",
        hovertemplate="error %{x:+.3g} %<extra>%{y}</extra>",
        **error_points("x", error, low, high),
    )
    figure.add_vline(x=0, line=ZERO_LINE)
    figure.update_layout(barmode="overlay", height=130 + 38 * len(errors))
    figure.update_xaxes(ticksuffix=" %", zeroline=False)
    figure.update_yaxes(type="category", autorange="reversed", categoryarray=names)
    return figure


def _alt(errors: pd.DataFrame) -> str:
    known = errors[np.isfinite(errors["error"])]
    said = [f"{name} {error:+.1f} %" for name, error in known[["metric", "error"]].values]
    return f"Error of the prediction: {', '.join(said) or 'not known'}."
