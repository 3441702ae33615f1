"""Who gains and who loses from one policy to another, by arrival."""

import pandas as pd

from app.figures.canvas import Figure, canvas
from app.figures.palette import COLOURS, LIMIT_COLOUR
from app.figures.sampling import as_float32, evenly
from app.figures.text import plain

MOST_POINTS = 1500
_SIDES = (("faster", COLOURS[0], "circle", -1), ("slower", COLOURS[1], "x", 1))


def gains_over_time(found: pd.DataFrame, a: str, b: str) -> Figure:
    """A point per request (evenly sampled): what its E2E latency is more or less under ``b``.

    ``found`` has ``request_id``, ``scheduled_s`` and ``difference`` (b - a, in seconds).
    """
    figure = canvas("scheduled arrival, s", "E2E latency difference, ms", _alt(found, a, b))
    shown = evenly(found, MOST_POINTS)
    for name, colour, symbol, sign in _SIDES:
        points = shown[shown["difference"] * sign > 0]
        figure.add_scatter(
            x=as_float32(points["scheduled_s"]),
            y=as_float32(1000 * points["difference"]),
            text=[plain(request) for request in points["request_id"]],
            name=f"{name} under {plain(b)}",
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 5, "opacity": 0.6},
            hovertemplate="%{text}: %{y:+.4g} ms, came at %{x:.4g} s<extra></extra>",
        )
    figure.add_hline(y=0, line={"color": LIMIT_COLOUR, "width": 1})
    figure.update_yaxes(rangemode="normal")
    return figure


def _alt(found: pd.DataFrame, a: str, b: str) -> str:
    faster, slower = (int((found["difference"] * sign > 0).sum()) for sign in (-1, 1))
    return (
        f"Difference of E2E latency in ms from {a} to {b} of every request by its arrival: "
        f"{faster} are faster, {slower} slower."
    )
