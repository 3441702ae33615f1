"""The figure of the page How many: what a number of servers, users or requests comes to."""

from collections.abc import Mapping, Sequence
from math import isfinite

from servetwin.app.figures.canvas import Figure, canvas, escape_markup
from servetwin.app.figures.palette import LIMIT_LINE, Look, Looks
from servetwin.app.reports.how_many.slo_target import axis_title, scaled, short
from servetwin.app.scenario.answers import Answer, CurvePoint
from servetwin.sim.experiments.capacity import SLOTarget

_MOST_LIMITS = 4
"""What lies higher than so many limits is cut off."""
_MOST_TICKS = 20


def count_curves(answers: Sequence[Answer], target: SLOTarget, x: str, looks: Looks) -> Figure:
    """Draw the latency (of several limits, the worst beside its limit) against the count.

    Filled symbols hold the target, open ones miss it; bars are the intervals.
    """
    figure = canvas(x, axis_title(target), _alt(answers, target, x))
    limit, highest = scaled(target, 1.0), 0.0
    for answer in answers:
        points = [point for point in answer.points if isfinite(point.factor)]
        if points:
            _add(figure, answer.label, points, target, looks[answer.label])
            highest = max(highest, *(scaled(target, point.factor) for point in points))
    figure.add_hline(y=limit, line=LIMIT_LINE, annotation_text="limit")
    top = min(1.1 * highest, _MOST_LIMITS * limit)
    figure.update_yaxes(range=[0, max(top, 1.25 * limit)])
    points = [point for answer in answers for point in answer.points]
    seen = [point.count for point in points if point.factor <= _MOST_LIMITS]
    counts = seen or [point.count for point in points]
    if seen:  # A candidate that never comes near the limit does not stretch the axis.
        pad = 0.05 * (max(seen) - min(seen)) or 0.5
        figure.update_xaxes(range=[min(seen) - pad, max(seen) + pad])
    if counts and max(counts) - min(counts) <= _MOST_TICKS and all(c == int(c) for c in counts):
        figure.update_xaxes(dtick=1)
    figure.update_layout(height=400)
    return figure


def is_cut(answers: Sequence[Answer]) -> bool:
    """Return whether points lie above what is drawn."""
    return any(point.factor > _MOST_LIMITS for answer in answers for point in answer.points)


def _add(
    figure: Figure, label: str, points: Sequence[CurvePoint], target: SLOTarget, look: Look
) -> None:
    symbols = [look.symbol if point.holds else f"{look.symbol}-open" for point in points]
    values = [scaled(target, point.factor) for point in points]
    figure.add_scatter(
        x=[point.count for point in points], y=values, name=escape_markup(label),
        mode="lines+markers", error_y=_bars(points, target),
        line={"color": look.colour, "dash": look.dash, "width": 2},
        marker={"color": look.colour, "symbol": symbols, "size": 11, "line": {"width": 2}},
        text=[_said(point) for point in points],
        hovertemplate="%{x}: %{y:.4g}%{text}<extra>%{fullData.name}</extra>",
    )  # fmt: skip


def _bars(points: Sequence[CurvePoint], target: SLOTarget) -> Mapping[str, object]:
    up, down = [], []
    for point in points:
        low, high = point.interval or (point.factor, point.factor)
        up.append(scaled(target, max(0.0, high - point.factor)) if isfinite(high) else 0.0)
        down.append(scaled(target, max(0.0, point.factor - low)) if isfinite(low) else 0.0)
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down}


def _said(point: CurvePoint) -> str:
    if point.holding is None:
        return ""
    return f"<br>holds in {point.holding} of {point.draws} draws"


def _alt(answers: Sequence[Answer], target: SLOTarget, x: str) -> str:
    what = axis_title(target).replace(", ", " in ")
    said = [f"{what} by {x}; the limit is {short(scaled(target, 1.0))}."]
    for answer in answers:
        curve = ", ".join(
            f"{short(scaled(target, point.factor))} at {point.count:g}" for point in answer.points
        )
        said.append(f"{answer.label}: {curve or answer.problem or 'nothing yet'}.")
    return " ".join(said)
