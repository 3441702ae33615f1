"""How far a prediction is off: metric by metric, and at low and at high load."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go  # type: ignore[import-untyped]

from servetwin.app.figures.canvas import Figure, canvas
from servetwin.app.figures.palette import COLOURS, LIMIT_LINE
from servetwin.app.words import METRICS

_NOISE_COLOUR = "rgba(128,128,128,0.3)"
_ALLOWED_COLOUR = "rgba(0,119,136,0.35)"

Values = npt.NDArray[np.float64]
Axis = Literal["x", "y"]


def errors_with_intervals(errors: pd.DataFrame) -> Figure:
    """Draw a point per metric with the confidence interval of the error, on a bar of its limit.

    Columns: ``metric`` (its label), and in per cent of what was measured ``error``, ``low``,
    ``high`` (of the interval) and ``allowed``; undefined where there is none.
    """
    known = errors[np.isfinite(errors["error"])]
    alt = [f"{name} {error:+.1f} %" for name, error in known[["metric", "error"]].values]
    alt_text = f"Error of the prediction: {', '.join(alt) or 'not known'}."
    title = "How far the prediction is off, metric by metric"
    figure = canvas("predicted - measured, % of measured", "", alt_text, title)
    names = errors["metric"].tolist()
    figure.add_bar(
        orientation="h", y=names, width=0.8, name="limit",
        hovertemplate="limit: ± %{customdata:.3g} %<extra>%{y}</extra>",
        **_bars_around_zero("x", errors["allowed"].to_numpy(float), _ALLOWED_COLOUR),
    )  # fmt: skip
    hover = "error %{x:+.3g} %<extra>%{y}</extra>"
    name = "error, confidence interval"
    _add_errors(figure, "x", errors, y=names, name=name, hovertemplate=hover)
    figure.add_vline(x=0, line=LIMIT_LINE)
    figure.update_layout(barmode="overlay", height=130 + 38 * len(errors))
    figure.update_xaxes(ticksuffix=" %", zeroline=False)
    figure.update_yaxes(type="category", autorange="reversed", categoryarray=names)
    return figure


def error_per_band(bands: pd.DataFrame, metric: str) -> Figure:
    """Draw the error per band of requests in flight, with its interval, on its noise floor.

    Columns: ``least`` and ``most`` requests in flight, ``requests``, and relative to what was
    measured ``error``, ``low``, ``high``, ``noise`` (undefined where nothing was repeated).
    """
    label = METRICS[metric].label
    names = [
        f"{_range(least, most)}<br>{count:.0f} requests"
        for least, most, count in bands[["least", "most", "requests"]].values
    ]
    title = f"How far the mean {label} is off, by requests in flight"
    figure = canvas(
        "in flight on arrival, requests",
        f"error of mean {label}, %",
        _band_alt(bands, label),
        title,
    )
    percent = 100 * bands[["error", "low", "high", "noise"]].astype(float)
    figure.add_bar(
        x=names, width=0.5, name="noise floor",
        hovertemplate="noise floor ± %{customdata:.3g} %<extra></extra>",
        **_bars_around_zero("y", percent["noise"].to_numpy(), _NOISE_COLOUR),
    )  # fmt: skip
    hover = "error %{y:+.3g} %<extra></extra>"
    _add_errors(figure, "y", percent, x=names, name="error, 90 % interval", hovertemplate=hover)
    figure.add_hline(y=0, line=LIMIT_LINE)
    figure.update_xaxes(type="category")
    figure.update_yaxes(ticksuffix=" %", zeroline=False, rangemode="normal")
    return figure


def _add_errors(figure: Figure, axis: Axis, errors: pd.DataFrame, **options: Any) -> None:
    """Add diamonds along ``axis``, each with its interval."""
    error, low, high = (errors[column].to_numpy(float) for column in ("error", "low", "high"))
    bars = {"type": "data", "symmetric": False, "array": high - error, "arrayminus": error - low}
    options |= {axis: error, f"error_{axis}": {**bars, "color": COLOURS[0], "thickness": 3}}
    marker = {"color": COLOURS[0], "size": 10, "symbol": "diamond"}
    figure.add_scatter(mode="markers", marker=marker, **options)


def _bars_around_zero(axis: Axis, half: Values, colour: str) -> dict[str, Any]:
    """Return options of ``add_bar``: ``half`` to either side of 0; hovering shows ``half``."""
    marker = {"color": colour, "line": {"width": 0}}
    return {axis: 2 * half, "base": -half, "customdata": half, "marker": marker}


def _range(least: float, most: float) -> str:
    return f"{least:.3g}" if least == most else f"{least:.3g} to {most:.3g}"


def _band_alt(bands: pd.DataFrame, label: str) -> str:
    known = bands[np.isfinite(bands["error"])]
    errors = [
        f"{_range(least, most)}: {100 * error:+.1f} %"
        for least, most, error in known[["least", "most", "error"]].values
    ]
    return f"Error of mean {label} by requests in flight: {'; '.join(errors) or 'not known'}."


def error_waterfall(
    metric: str,
    predicted: float,
    effects: Sequence[tuple[str, float | None, str]],
    left: float,
) -> Figure:
    """Draw the relative error of a mean latency as a waterfall.

    ``effects`` are (part, its share of the error, what was measured), in the order in which the
    parts were replaced; None for a part that was not measured, which is drawn as a gap.
    """
    label = METRICS[metric].label
    parts = ", ".join(f"{name} {_share(effect)}" for name, effect, _ in effects)
    alt = f"{label} is {100 * predicted:+.1f} % off: {parts}; {100 * left:+.1f} is left."
    title = f"Where the error of the mean {label} comes from"
    figure = canvas(f"error of mean {label}, % of measured", "", alt, title)
    names = [
        f"predicted {100 * predicted:+.1f} %",
        *(f"{name} {_share(effect)}" for name, effect, _ in effects),
        f"left {100 * left:+.1f} %",
    ]
    values = [predicted, *(-effect if effect else 0.0 for _, effect, _ in effects), left]
    figure.add_trace(
        go.Waterfall(
            orientation="h",
            y=names,
            x=[100 * value for value in values],
            measure=["absolute", *("relative" for _ in effects), "total"],
            customdata=["", *(note for _, _, note in effects), ""],
            hovertemplate="to %{final:+.3g} %<br>%{customdata}<extra>%{y}</extra>",
            connector={"line": LIMIT_LINE},
            increasing={"marker": {"color": COLOURS[1]}},
            decreasing={"marker": {"color": COLOURS[0]}},
            totals={"marker": {"color": COLOURS[2]}},
        )
    )
    figure.add_vline(x=0, line=LIMIT_LINE)
    figure.update_layout(height=130 + 32 * len(names), showlegend=False)
    figure.update_xaxes(ticksuffix=" %", zeroline=False, rangemode="normal")
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def _share(effect: float | None) -> str:
    """Return what stands beside the name of a part: its share of the error, in points."""
    if effect is None:
        return "(not measured)"
    return f"{100 * effect:+.1f}" if effect else "0"
