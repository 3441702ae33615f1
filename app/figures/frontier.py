"""Throughput against the speed that a user sees, of a grid of scenarios."""

import pandas as pd

from servetwin.app.figures.canvas import (
    LIMIT_COLOUR,
    Figure,
    Look,
    canvas,
    escape_markup,
    looks,
)
from servetwin.app.words import short

_X = "interactivity_tokens_per_s"
_SHADE = "rgba(128,128,128,0.14)"


def frontier(
    points: pd.DataFrame,
    y: str,
    y_title: str,
    *,
    share: float,
    best: int | None = None,
    tpot_limit_s: float | None = None,
) -> Figure:
    """Draw throughput against the speed that a user sees, a line per configuration.

    ``points`` have ``series``, ``label``, interactivity, ``y``, ``slo_attainment`` and
    ``on_front``; customdata is a point's row label. Filled symbols keep the SLO for ``share`` of
    the requests, open ones do not. The star is ``best``; the region within ``tpot_limit_s`` is
    shaded.
    """
    defined = points.dropna(subset=[_X, y])
    what = y_title.rpartition(", ")[0] or y_title
    title = f"{what} against the speed that a user sees"
    x_title = "speed for a user, tokens/s (1 / median TPOT)"
    figure = canvas(x_title, y_title, _alt(defined, y, y_title, best), title)
    most = float(defined[_X].max()) * 1.06 if len(defined) else 1.0
    _add_front(figure, defined, y)
    groups = dict(list(defined.groupby("series", sort=False)))
    for name, look in looks(map(str, groups)).items():
        _add_series(figure, name, groups[name], y, look, share)
    if best is not None and best in defined.index:
        _add_star(figure, defined.loc[[best]], y)
    if tpot_limit_s is not None:
        _shade(figure, 1 / tpot_limit_s, most)
    figure.update_xaxes(range=[0, most])
    return figure


def _add_front(figure: Figure, points: pd.DataFrame, y: str) -> None:
    front = points[points["on_front"]].sort_values(_X)
    figure.add_scatter(
        x=front[_X], y=front[y], name="Pareto front", mode="lines", hoverinfo="skip",
        line={"color": LIMIT_COLOUR, "width": 7, "shape": "vh"}, opacity=0.4,
    )  # fmt: skip


def _add_series(
    figure: Figure,
    name: str,
    points: pd.DataFrame,
    y: str,
    look: Look,
    share: float,
) -> None:
    texts = [
        f"{escape_markup(label)}<br>{100 * attainment:.1f} % within the SLO"
        for label, attainment in zip(points["label"], points["slo_attainment"], strict=True)
    ]
    hover = "%{text}<br>%{y:.4g} at %{x:.4g} tokens/s for a user<extra></extra>"
    marker = look.symbols(points["slo_attainment"] >= share)
    options = {"marker": marker, "cliponaxis": False, "customdata": list(points.index)}
    options |= {"line": {**look.line, "width": 1.5}, "text": texts}
    figure.plot("lines+markers", escape_markup(name), points[_X], points[y], hover, **options)


def _add_star(figure: Figure, best: pd.DataFrame, y: str) -> None:
    edge = {"color": "#5B6070", "width": 1.5}
    marker = {"symbol": "star", "size": 24, "color": "#E69F00", "line": edge}
    text, hover = [escape_markup(label) for label in best["label"]], "best: %{text}<extra></extra>"
    options = {"marker": marker, "customdata": list(best.index), "text": text}
    figure.plot("markers", "best within the SLO", best[_X], best[y], hover, **options)


def _shade(figure: Figure, least: float, most: float) -> None:
    if least >= most:
        return
    text = f"median TPOT within the SLO (from {least:.3g} tokens/s)"
    figure.add_vrect(
        x0=least, x1=most, fillcolor=_SHADE, line_width=0, layer="below", annotation_text=text,
        annotation_position="top right",
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
    return f"{short(point[y].item())} at {short(point[_X].item())}"
