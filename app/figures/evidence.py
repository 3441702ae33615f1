"""Predictions of real servers beside what was measured, by what their step times are from."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import Figure, canvas_in_columns
from servetwin.app.figures.diagonal import add_diagonal
from servetwin.app.figures.palette import LIMIT_COLOUR, SYMBOLS
from servetwin.app.reports.assets import asset_table
from servetwin.app.reports.metric_labels import METRICS, Metric
from servetwin.app.reports.origins import LOOKS
from servetwin.app.reports.tables import number

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
