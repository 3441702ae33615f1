"""Predictions beside what was measured: percentiles of runs, and published runs of real GPUs."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import (
    OF_RUN,
    Figure,
    FloatArray,
    Frames,
    add_band,
    canvas,
    canvas_in_columns,
    marker_of,
    plot,
    set_alt,
)
from servetwin.app.figures.palette import LIMIT_COLOUR, LIMIT_LINE, SYMBOLS, Looks
from servetwin.app.words import LOOKS, METRICS, Metric, asset_table, number

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


BAND = 0.1
"""Relative error that the shaded band allows."""


def add_diagonal(
    figure: Figure, least: float, most: float, in_legend: bool = True, **panel: int
) -> None:
    """Draw the diagonal from ``least`` to ``most``; ``panel`` is as for ``add_band``."""
    ends = [least, most]
    low, high = ([slope * end for end in ends] for slope in (1 - BAND, 1 + BAND))
    fill = "rgba(128,128,128,0.18)"
    add_band(figure, f"within {100 * BAND:.0f} %", ends, low, high, fill, in_legend, **panel)
    figure.add_scatter(
        x=ends, y=ends, mode="lines", line={**LIMIT_LINE, "width": 1.5}, name="equal",
        hoverinfo="skip", showlegend=in_legend, **panel,
    )  # fmt: skip


_WORDS = asset_table("words.yaml")["evidence"]
_STYLES = asset_table("looks.yaml")["evidence"]
_FEW_TICKS, _MANY_TICKS = (1, 3), (1, 1.5, 2, 3, 4, 5, 7)
_NARROW = 3.0
"""Largest over least value below which a decade needs many ticks."""
_MARGIN = 1.15
_SIZE_PX = 10
_HEIGHT_PX = 400


def predicted_by_evidence(figures: pd.DataFrame) -> Figure:
    """Draw a panel per metric, measured to the right and predicted upwards, both logarithmic.

    Columns of ``figures``: ``gpu`` (a symbol), ``evidence`` (the colour of its origin, and a style:
    filled, open, crossed), ``metric``, ``point`` (mean, p90), ``predicted`` and ``measured`` in
    seconds, and the relative ``error``.
    """
    metrics = figures["metric"].unique().tolist()
    titles = [_shown_metric(figures[figures["metric"] == metric]).title for metric in metrics]
    axes = [(f"measured {title}", f"predicted {title}") for title in titles]
    title = "Predicted against measured latencies of real GPUs"
    figure = canvas_in_columns(axes, _alt(figures), title)
    for col, metric in enumerate(metrics, start=1):
        _add_panel(figure, figures[figures["metric"] == metric], col)
    for gpu, symbol in _symbols(figures).items():
        marker = {"symbol": symbol, "color": LIMIT_COLOUR, "size": _SIZE_PX}
        figure.add_scatter(x=[None], y=[None], mode="markers", name=gpu, marker=marker)
    figure.update_layout(height=_HEIGHT_PX)
    return figure


def _shown_metric(figures: pd.DataFrame) -> Metric:
    """Return the one metric of these figures, in the unit in which they are shown."""
    values = figures[["predicted", "measured"]].to_numpy(float).ravel().tolist()
    return METRICS[figures["metric"].iloc[0]].fitting(values)


def _add_panel(figure: Figure, figures: pd.DataFrame, col: int) -> None:
    metric, symbols = _shown_metric(figures), _symbols(figures)
    scaled = figures.assign(**{s: metric.factor * figures[s] for s in ("predicted", "measured")})
    values = scaled[["predicted", "measured"]].to_numpy(float)
    least, most = float(values.min()) / _MARGIN, float(values.max()) * _MARGIN
    add_diagonal(figure, least, most, in_legend=col == 1, row=1, col=col)
    for kind, style in _STYLES.items():  # filled ones first: open ones do not hide them
        colour, _ = LOOKS[_WORDS[kind]["origin"]]
        found = scaled[scaled["evidence"] == kind]
        marker = {
            "symbol": [symbols[gpu] + style for gpu in found["gpu"]],
            "color": colour, "size": _SIZE_PX, "line": {"width": 2, "color": colour},
        }  # fmt: skip
        figure.add_scatter(
            x=found["measured"], y=found["predicted"], mode="markers", marker=marker,
            name=_WORDS[kind]["label"], legendgroup=kind, showlegend=col == 1, row=1, col=col,
            text=[_hover(row, metric.unit) for row in found.to_dict("records")],
            hovertemplate="%{text}<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    _set_log_axes(figure, least, most, col)


def _set_log_axes(figure: Figure, least: float, most: float, col: int) -> None:
    """Set the same range and ticks on both axes: plotly's own are too few within a decade."""
    decades = 10.0 ** np.arange(np.floor(np.log10(least)), np.ceil(np.log10(most)))
    each = _MANY_TICKS if most / least < _NARROW else _FEW_TICKS
    ticks = [tick for tick in np.outer(decades, each).ravel() if least <= tick <= most]
    options = {
        "type": "log", "range": [np.log10(least), np.log10(most)], "tickvals": ticks,
        "ticktext": [f"{tick:,.9g}" for tick in ticks],
    }  # fmt: skip
    figure.update_xaxes(**options, col=col)
    figure.update_yaxes(**options, col=col)


def _symbols(figures: pd.DataFrame) -> dict[str, str]:
    """Return the symbol of each GPU; the first three have all styles."""
    return dict(zip(sorted(figures["gpu"].unique()), SYMBOLS[:3], strict=False))


def _hover(row: Mapping[Hashable, Any], unit: str) -> str:
    ours, theirs = number(row["predicted"], 1.0), number(row["measured"], 1.0)
    return (
        f"{row['gpu']}, {row['point']}: predicted {ours} {unit}, measured {theirs} {unit}, "
        f"{100 * row['error']:+.1f} %"
    )


def _alt(figures: pd.DataFrame) -> str:
    """Return the largest error of each GPU and evidence in words."""
    said = [
        f"{gpu}, {_WORDS[kind]['label']}: {100 * group['error'].abs().max():.1f} %"
        for gpu, on_gpu in figures.groupby("gpu", sort=False)
        for kind, group in on_gpu.groupby("evidence", sort=False)
    ]
    return f"Predicted against measured latencies of real GPUs. Largest errors: {'; '.join(said)}."
