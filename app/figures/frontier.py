"""Throughput against the speed that a user sees, of a grid of scenarios."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from servetwin.app.figures.canvas import (
    LIMIT_COLOUR,
    Figure,
    Look,
    escape_markup,
    looks,
    place_legend,
    plot,
    spoken,
    stacked_canvas,
)

_X = "interactivity_tokens_per_s"
_SHADE = "rgba(128,128,128,0.14)"
_HEIGHT_PX = 370
_PANEL_PX = 270
_LEGEND_PX = 90
"""Three rows of a legend and its title."""


def frontier(
    points: pd.DataFrame,
    y: str,
    y_title: str,
    groups: Mapping[str, Sequence[str]],
    *,
    share: float,
    best: int | None = None,
    tpot_limit_s: float | None = None,
) -> Figure:
    """Draw throughput against the speed that a user sees, a line per configuration.

    ``points`` have ``series``, ``label``, interactivity, ``y``, ``slo_attainment`` and
    ``on_front``; customdata is a point's row label. ``groups`` are the series of each panel, by its
    title: all panels have the same axes, and in grey what the others show.

    Filled symbols keep the SLO for ``share`` of the requests, open ones do not. The star is
    ``best``; the region within ``tpot_limit_s`` is shaded.
    """
    defined = points.dropna(subset=[_X, y])
    what = y_title.rpartition(", ")[0] or y_title
    title = f"{what} against the speed that a user sees"
    figure = _panels(groups, y_title, _alt(defined, y, y_title, best), title)
    most = float(defined[_X].max()) * 1.06 if len(defined) else 1.0
    for row, (title, series) in enumerate(groups.items(), start=1):
        place = {"row": row, "col": 1, "legend": place_legend(figure, row, title)}
        _add_panel(figure, defined, y, series, share, best, place)
        if tpot_limit_s is not None:
            _shade(figure, 1 / tpot_limit_s, most, row)
    figure.update_xaxes(range=[0, most])
    if len(groups) > 1 and len(defined):
        figure.update_yaxes(range=[0, 1.06 * float(defined[y].max())])
    return figure


def _panels(groups: Mapping[str, Sequence[str]], y_title: str, alt: str, title: str) -> Figure:
    x_title, count = "speed for a user, tokens/s (1 / median TPOT)", len(groups)
    height_px, legend_px = (_HEIGHT_PX, 0) if count == 1 else (_PANEL_PX, _LEGEND_PX)
    return stacked_canvas(x_title, [y_title] * count, alt, [height_px] * count, title, legend_px)


def _add_panel(
    figure: Figure,
    points: pd.DataFrame,
    y: str,
    series: Sequence[str],
    share: float,
    best: int | None,
    place: Mapping[str, Any],
) -> None:
    _add_front(figure, points, y, place)
    for _, of_series in points[~points["series"].isin(series)].groupby("series", sort=False):
        line = {"color": LIMIT_COLOUR, "width": 1}
        figure.add_scatter(
            x=of_series[_X], y=of_series[y], mode="lines", line=line, opacity=0.35,
            hoverinfo="skip", showlegend=False, **place,
        )  # fmt: skip
    look_of = looks(series)
    for name in series:
        of_series = points[points["series"] == name]
        if len(of_series):
            _add_series(figure, name, of_series, y, look_of[name], share, place)
    if best is not None and best in points.index and points.loc[best, "series"] in series:
        _add_star(figure, points.loc[[best]], y, place)


def _add_front(figure: Figure, points: pd.DataFrame, y: str, place: Mapping[str, Any]) -> None:
    front = points[points["on_front"]].sort_values(_X)
    figure.add_scatter(
        x=front[_X], y=front[y], name="Pareto front", mode="lines", hoverinfo="skip",
        line={"color": LIMIT_COLOUR, "width": 7, "shape": "vh"}, opacity=0.4, **place,
    )  # fmt: skip


def _add_series(
    figure: Figure,
    name: str,
    points: pd.DataFrame,
    y: str,
    look: Look,
    share: float,
    place: Mapping[str, Any],
) -> None:
    texts = [
        f"{escape_markup(label)}<br>{100 * attainment:.1f} % within the SLO"
        for label, attainment in zip(points["label"], points["slo_attainment"], strict=True)
    ]
    hover = "%{text}<br>%{y:.4g} at %{x:.4g} tokens/s for a user<extra></extra>"
    marker = look.symbols(points["slo_attainment"] >= share)
    options = {"marker": marker, "cliponaxis": False, "customdata": list(points.index), **place}
    options |= {"line": {**look.line, "width": 1.5}, "text": texts}
    plot(figure, "lines+markers", escape_markup(name), points[_X], points[y], hover, **options)


def _add_star(figure: Figure, best: pd.DataFrame, y: str, place: Mapping[str, Any]) -> None:
    edge = {"color": "#5B6070", "width": 1.5}
    marker = {"symbol": "star", "size": 24, "color": "#E69F00", "line": edge}
    text, hover = [escape_markup(label) for label in best["label"]], "best: %{text}<extra></extra>"
    options = {"marker": marker, "customdata": list(best.index), "text": text, **place}
    plot(figure, "markers", "best within the SLO", best[_X], best[y], hover, **options)


def _shade(figure: Figure, least: float, most: float, row: int) -> None:
    if least >= most:
        return
    text = f"median TPOT within the SLO (from {least:.3g} tokens/s)" if row == 1 else ""
    figure.add_vrect(
        x0=least, x1=most, fillcolor=_SHADE, line_width=0, layer="below", annotation_text=text,
        annotation_position="top right", row=row, col=1,
    )  # fmt: skip


def _alt(points: pd.DataFrame, y: str, y_title: str, best: int | None) -> str:
    alt = [f"{len(points)} points: {y_title} against tokens per second for a user."]
    if best is not None and best in points.index:
        alt.append(f"Best is {points['label'].loc[best]}: {_place(points.loc[[best]], y)}.")
    front = points[points["on_front"]].sort_values(_X) if len(points) else points
    if len(front):
        ends = [_place(front.iloc[[end]], y) for end in (0, -1)]
        alt.append(f"The Pareto front goes from {ends[0]} to {ends[1]} tokens/s.")
    return " ".join(alt)


def _place(point: pd.DataFrame, y: str) -> str:
    """Return where the one row of a frame lies."""
    return f"{spoken(point[y].item())} at {spoken(point[_X].item())}"
