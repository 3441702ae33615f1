"""How far a prediction is off, metric by metric, beside what it may be off by."""

import numpy as np
import pandas as pd

from app.figures.canvas import Figure, canvas
from app.figures.palette import COLOURS, LIMIT_COLOUR

_ALLOWED, _NOISE = "rgba(0,119,136,0.35)", "rgba(128,128,128,0.55)"


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
        ("noise", _NOISE, 0.4, "noise floor"),
    ):
        half = errors[column].to_numpy(float)
        figure.add_bar(
            orientation="h", y=names, base=-half, x=2 * half, width=width, name=said,
            marker={"color": colour, "line": {"width": 0}}, customdata=half,
            hovertemplate=f"{said}: ± %{{customdata:.3g}} %<extra>%{{y}}</extra>",
        )  # fmt: skip
    error = errors["error"].to_numpy(float)
    figure.add_scatter(
        x=error,
        y=names,
        mode="markers",
        name="error, predicted interval",
        marker={"color": COLOURS[0], "size": 10, "symbol": "diamond"},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": errors["high"].to_numpy(float) - error,
            "arrayminus": error - errors["low"].to_numpy(float),
            "color": COLOURS[0],
        },
        hovertemplate="error %{x:+.3g} %<extra>%{y}</extra>",
    )
    figure.add_vline(x=0, line={"color": LIMIT_COLOUR, "dash": "dash"})
    figure.update_layout(barmode="overlay", height=130 + 38 * len(errors))
    figure.update_xaxes(ticksuffix=" %", zeroline=False)
    figure.update_yaxes(type="category", autorange="reversed", categoryarray=names)
    return figure


def _alt(errors: pd.DataFrame) -> str:
    known = errors[np.isfinite(errors["error"])]
    said = [f"{name} {error:+.1f} %" for name, error in known[["metric", "error"]].values]
    return f"Error of the prediction: {', '.join(said) or 'not known'}."
