"""Predictions beside what was measured: percentiles of runs, real GPUs, and how far each is off."""

from collections.abc import Hashable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import (
    COLOURS,
    LIMIT_COLOUR,
    LIMIT_LINE,
    OF_RUN,
    SYMBOLS,
    Figure,
    FloatArray,
    Frames,
    Looks,
    canvas,
    canvas_in_columns,
    error_bars,
)
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
            "marker": {**looks[run].points, "size": 9, "opacity": 1.0},
        }
        figure.plot(mode, run, points, predicted_points, hover, **options)
        tops += [*points, *predicted_points]
        alt.append(f"{run}: " + _median_error(predicted_points, points))
    add_diagonal(figure, 0.0, 1.05 * float(np.nanmax(tops)))
    figure.update_layout(legend_traceorder="normal")
    figure.set_alt(" ".join(alt))
    return figure


def _percentiles(requests: pd.DataFrame, metric: str) -> FloatArray:
    values = requests.loc[requests["status"] == "finished", metric].dropna().to_numpy(dtype=float)
    return np.percentile(values, PERCENTILES) if len(values) else np.full(len(PERCENTILES), np.nan)


def _median_error(predicted: FloatArray, measured: FloatArray) -> str:
    middle = PERCENTILES.index(50)
    error = predicted[middle] / measured[middle] - 1 if measured[middle] else np.nan
    return f"the median is off by {100 * error:+.1f} %." if np.isfinite(error) else "no value."


# Relative error that the shaded band allows.
BAND = 0.1


def add_diagonal(
    figure: Figure, least: float, most: float, in_legend: bool = True, **panel: int
) -> None:
    """Draw the diagonal from ``least`` to ``most``; ``panel`` is as for ``add_band``."""
    ends = [least, most]
    bounds = [(1 - BAND) * end for end in ends], [(1 + BAND) * end for end in ends]
    fill = "rgba(128,128,128,0.18)"
    figure.add_band(f"within {100 * BAND:.0f} %", ends, bounds, fill, in_legend, **panel)
    figure.add_scatter(
        x=ends, y=ends, mode="lines", line={**LIMIT_LINE, "width": 1.5}, name="equal",
        hoverinfo="skip", showlegend=in_legend, **panel,
    )  # fmt: skip


_WORDS = asset_table("words.yaml")["evidence"]
_STYLES = asset_table("looks.yaml")["evidence"]
_FEW_TICKS, _MANY_TICKS = (1, 3), (1, 1.5, 2, 3, 4, 5, 7)
# Largest over least value below which a decade needs many ticks.
_NARROW = 3.0
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
    titles = [shown_metric(figures, metric).title for metric in metrics]
    axes = [(f"measured<br>{title}", f"predicted {title}") for title in titles]
    title = "Predicted against measured latencies of real GPUs"
    figure = canvas_in_columns(axes, _alt(figures), title)
    for col, metric in enumerate(metrics, start=1):
        _add_panel(figure, figures[figures["metric"] == metric], col)
    for gpu, symbol in _symbols(figures).items():
        marker = {"symbol": symbol, "color": LIMIT_COLOUR, "size": _SIZE_PX}
        figure.add_scatter(x=[None], y=[None], mode="markers", name=gpu, marker=marker)
    figure.update_layout(height=_HEIGHT_PX)
    return figure


def shown_metric(figures: pd.DataFrame, metric: str) -> Metric:
    """Return a metric in the unit in which its figures of all GPUs are shown."""
    of_metric = figures.loc[figures["metric"] == metric, ["predicted", "measured"]]
    return METRICS[metric].fitting(of_metric.to_numpy(float).ravel().tolist())


def _add_panel(figure: Figure, figures: pd.DataFrame, col: int) -> None:
    metric, symbols = shown_metric(figures, figures["metric"].iloc[0]), _symbols(figures)
    scaled = figures.assign(**{s: metric.factor * figures[s] for s in ("predicted", "measured")})
    values = scaled[["predicted", "measured"]].to_numpy(float)
    least, most = float(values.min()) / _MARGIN, float(values.max()) * _MARGIN
    add_diagonal(figure, least, most, in_legend=col == 1, row=1, col=col)
    for kind, style in _STYLES.items():  # filled ones first: open ones do not hide them
        colour, _ = LOOKS[_WORDS[kind]["origin"]]
        points = scaled[scaled["evidence"] == kind]
        marker = {
            "symbol": [symbols[gpu] + style for gpu in points["gpu"]],
            "color": colour, "size": _SIZE_PX, "line": {"width": 2, "color": colour},
        }  # fmt: skip
        figure.add_scatter(
            x=points["measured"], y=points["predicted"], mode="markers", marker=marker,
            name=_WORDS[kind]["label"], legendgroup=kind, showlegend=col == 1, row=1, col=col,
            text=[_hover(row, metric.unit) for row in points.to_dict("records")],
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
    errors = [
        f"{gpu}, {_WORDS[kind]['label']}: {100 * group['error'].abs().max():.1f} %"
        for gpu, on_gpu in figures.groupby("gpu", sort=False)
        for kind, group in on_gpu.groupby("evidence", sort=False)
    ]
    listed = "; ".join(errors)
    return f"Predicted against measured latencies of real GPUs. Largest errors: {listed}."


_NOISE_COLOUR = "rgba(128,128,128,0.3)"
_ALLOWED_COLOUR = "rgba(0,119,136,0.25)"

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
    x, y = "in flight on arrival, requests", f"error of mean {label}, %"
    figure = canvas(x, y, _band_alt(bands, label), title)
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
    error = errors["error"].to_numpy(float)
    bars = error_bars(error, errors[["low", "high"]].to_numpy(float))
    options |= {axis: error, f"error_{axis}": {**bars, "color": COLOURS[0], "thickness": 3}}
    marker = {"color": COLOURS[0], "size": 10, "symbol": "diamond"}
    figure.add_scatter(mode="markers", marker=marker, **options)


def _bars_around_zero(axis: Axis, half: FloatArray, colour: str) -> dict[str, Any]:
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
