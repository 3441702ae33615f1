"""Throughput against the speed that a user sees, of a grid of scenarios."""

import pandas as pd

from servetwin.app.figures.canvas import LIMIT_COLOUR, Figure, Look, canvas, escape_markup, looks
from servetwin.app.words import short
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.experiments.sweep import GOODPUT, INTERACTIVITY, best_point

_TITLE = "goodput per replica, requests/s"
_SHADE = "rgba(128,128,128,0.14)"


def frontier(points: pd.DataFrame, target: SLOTarget) -> Figure:
    """Draw goodput against the speed that a user sees, a line per configuration.

    ``points`` have ``series``, ``label``, interactivity, goodput, ``slo_attainment`` and
    ``on_front``; customdata is a point's row label. Filled symbols keep the SLO for the share of
    the target, open ones do not; the star is the best that does. The region within the limit of
    TPOT is shaded.
    """
    defined, share = points.dropna(subset=[INTERACTIVITY, GOODPUT]), target.attainment
    front = defined[defined["on_front"]].sort_values(INTERACTIVITY)
    label = best_point(defined, GOODPUT, share)
    best = defined.loc[[] if label is None else [label]]
    title, alt = (
        "Goodput per replica against the speed that a user sees",
        _alt(defined, front, best),
    )
    figure = canvas("speed for a user, tokens/s (1 / median TPOT)", _TITLE, alt, title)
    most = float(defined[INTERACTIVITY].max()) * 1.06 if len(defined) else 1.0
    figure.add_scatter(
        x=front[INTERACTIVITY], y=front[GOODPUT], name="Pareto front", mode="lines",
        hoverinfo="skip", opacity=0.4,
        line={"color": LIMIT_COLOUR, "width": 7, "shape": "vh"},
    )  # fmt: skip
    groups = dict(list(defined.groupby("series", sort=False)))
    for name, look in looks(map(str, groups)).items():
        _add_series(figure, name, groups[name], look, share)
    if len(best):
        _add_star(figure, best)
    if target.slo.tpot_s is not None:
        _shade(figure, 1 / target.slo.tpot_s, most)
    figure.update_xaxes(range=[0, most])
    return figure


def _add_series(figure: Figure, name: str, points: pd.DataFrame, look: Look, share: float) -> None:
    texts = [
        f"{escape_markup(label)}<br>{100 * attainment:.1f} % within the SLO"
        for label, attainment in zip(points["label"], points["slo_attainment"], strict=True)
    ]
    hover = "%{text}<br>%{y:.4g} at %{x:.4g} tokens/s for a user<extra></extra>"
    marker = look.symbols(points["slo_attainment"] >= share)
    options = {"marker": marker, "cliponaxis": False, "customdata": list(points.index)}
    options |= {"line": {**look.line, "width": 1.5}, "text": texts}
    x, y = points[INTERACTIVITY], points[GOODPUT]
    figure.plot("lines+markers", escape_markup(name), x, y, hover, **options)


def _add_star(figure: Figure, best: pd.DataFrame) -> None:
    edge = {"color": "#5B6070", "width": 1.5}
    marker = {"symbol": "star", "size": 24, "color": "#E69F00", "line": edge}
    text, hover = [escape_markup(label) for label in best["label"]], "best: %{text}<extra></extra>"
    options = {"marker": marker, "customdata": list(best.index), "text": text}
    x, y = best[INTERACTIVITY], best[GOODPUT]
    figure.plot("markers", "best within the SLO", x, y, hover, **options)


def _shade(figure: Figure, least: float, most: float) -> None:
    if least >= most:
        return
    text = f"median TPOT within the SLO (from {least:.3g} tokens/s)"
    figure.add_vrect(
        x0=least, x1=most, fillcolor=_SHADE, line_width=0, layer="below", annotation_text=text,
        annotation_position="top right",
    )  # fmt: skip


def _alt(points: pd.DataFrame, front: pd.DataFrame, best: pd.DataFrame) -> str:
    alt = [f"{len(points)} points: {_TITLE} against tokens per second for a user."]
    if len(best):
        alt.append(f"Best is {best['label'].item()}: {_place(best)}.")
    if len(front):
        ends = [_place(front.iloc[[end]]) for end in (0, -1)]
        alt.append(f"The Pareto front goes from {ends[0]} to {ends[1]} tokens/s.")
    return " ".join(alt)


def _place(point: pd.DataFrame) -> str:
    """Return where the one row of a frame lies."""
    return f"{short(point[GOODPUT].item())} at {short(point[INTERACTIVITY].item())}"
