"""Curves of what clients see: by load, measured or simulated, and by how many servers there are."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import (
    LIMIT_COLOUR,
    LIMIT_LINE,
    MOST_LIMITS,
    OF_RUN,
    Figure,
    Look,
    Looks,
    canvas,
    error_bars,
    escape_markup,
    looks,
)
from servetwin.app.scenario.answers import Answer, CurvePoint
from servetwin.app.words import METRICS, Metric, axis_title, scaled, short
from servetwin.loadtest.sweep.level import COMPLETED, SHARE, TOKENS, Level
from servetwin.loadtest.sweep.sweep import Sweep
from servetwin.sim.experiments.capacity import SLOTarget

_SHARE = Metric("share of requests within the SLO", "", 1.0, "")
_PLAIN = Metric("output tokens/s", "", 1.0, "")
_LOADS = {"users": "users", "slo": "requests/s offered (1 user: completed)"}
Place = Callable[[Level], float | None]


def level_curves(sweep: Sweep) -> list[tuple[str, Figure]]:
    """Return title and figure of each curve: p99 latencies, attainment, medians, throughput."""
    medians, p99 = (
        [_latency(sweep, key, point) for key in ("ttft_s", "tpot_s")] for point in ("p50", "p99")
    )
    throughput = ("Output throughput", _curve(sweep, TOKENS, _PLAIN))
    return [*p99, *_attainment(sweep), *medians, throughput]


def _latency(sweep: Sweep, key: str, point: str) -> tuple[str, Figure]:
    """Draw a latency; of a p99 with its limit and the knee, and no more than four limits high."""
    metric = _shown(key, point, sweep)
    figure = _curve(sweep, f"{key}.{point}", replace(metric, label=f"{point} {metric.label}"))
    limit_s = getattr(sweep.limits, key, None)
    if point == "p99" and limit_s is not None:
        limit = limit_s * metric.factor
        figure.add_limit(limit, max((max(trace.y) for trace in figure.data), default=0.0))
    return f"{metric.label}, {point}", figure


def _attainment(sweep: Sweep) -> list[tuple[str, Figure]]:
    if sweep.limits is None:
        return []
    figure = _curve(sweep, SHARE, _SHARE)
    attainments = [level.attainment for level in _placed(sweep) if level.attainment]
    bars = error_bars(
        [one.share for one in attainments], [(one.low, one.high) for one in attainments]
    )
    figure.update_traces(error_y=bars, selector={"name": "measured"})
    figure.add_hline(y=sweep.settings.wanted, line={"color": LIMIT_COLOUR, "dash": "dot"})
    return [("Share of requests within the SLO", figure)]


def _shown(name: str, point: str, sweep: Sweep) -> Metric:
    """Return a metric in the unit in which a figure of it is shown."""
    rows = (row for level in sweep.levels for row in (level.figures, level.predicted) if row)
    return METRICS[name].fitting(row[f"{name}.{point}"] for row in rows)


def _curve(sweep: Sweep, key: str, metric: Metric) -> Figure:
    """Draw a figure of the measured levels over their load, and of the predicted ones."""
    levels, place = _placed(sweep), _place(sweep)
    title, factor = metric.title, metric.factor
    x = _LOADS.get(sweep.settings.of, "requests/s offered (all at once: completed)")
    figure = canvas(x, title, _alt(levels, key, title), f"{title} by offered load")
    for name, look in looks(("measured", "predicted")).items():
        rows = [(one, one.figures if name == "measured" else one.predicted) for one in levels]
        points = [
            (place(level), factor * value)
            for level, row in rows
            if row and (value := row[key]) is not None
        ]
        if points:
            xs, ys = zip(*points, strict=True)
            figure.add_scatter(x=xs, y=ys, mode="lines+markers", name=name, line=look.line)
    if sweep.knee and sweep.knee.rate_per_s is not None:
        figure.add_vline(x=sweep.knee.rate_per_s, line=LIMIT_LINE, annotation_text="knee")
    return figure


def _placed(sweep: Sweep) -> list[Level]:
    """Return the levels that count and have a place on the axis, in its order."""
    place = _place(sweep)
    levels = [level for level in sweep.levels if level.counts and place(level) is not None]
    return sorted(levels, key=lambda level: place(level) or 0.0)


def _place(sweep: Sweep) -> Place:
    if sweep.settings.of == "users":
        return lambda level: level.plan.users
    ends = ("synchronous",) if sweep.settings.of == "slo" else ("synchronous", "throughput")
    return lambda level: (
        level.plan.rate_per_s or (level.figures[COMPLETED] if level.plan.kind in ends else None)
    )


def _alt(levels: Sequence[Level], key: str, title: str) -> str:
    texts = ", ".join(
        f"{level.plan.load}: {value:.4g}"
        for level in levels
        if (value := level.figures[key]) is not None
    )
    return f"{title} by offered load. {texts}."


_MOST_TICKS = 20
_LARGE_PX = 400


def latency_by_load(
    points: pd.DataFrame,
    metric: str,
    looks: Looks,
    *,
    limit_s: float | None,
    now_per_s: float,
) -> Figure:
    """Draw the p99 of a latency against the load, a line per series, with the limit and today's
    load.

    ``points`` have ``series``, ``rate`` (requests/s) and the figures of ``sim.experiments.sweep``.
    Filled symbols are within the limit.
    """
    column = f"{metric}_p99"
    shown = METRICS[metric].fitting([limit_s] if limit_s else points[column])
    title = f"{shown.label} by load, p99"
    figure = canvas("load, requests/s", f"p99 {shown.title}", "", title)
    limit, highest, alt = shown.scaled(limit_s), 0.0, [f"{title}, in {shown.unit}."]
    for name, of in (
        points.dropna(subset=[column]).sort_values("rate").groupby("series", sort=False)
    ):
        y = of[column].to_numpy(float) * shown.factor
        marker = looks[str(name)].symbols(y <= (limit or np.inf))
        hover = f"%{{y:.4g}} {shown.unit} at %{{x:.4g}} requests/s{OF_RUN}"
        figure.plot("lines+markers", escape_markup(name), of["rate"], y, hover,
             line=looks[str(name)].line, marker=marker)  # fmt: skip
        highest = max(highest, float(y.max()))
        curve = ", ".join(f"{short(v)} at {r:g}" for r, v in zip(of["rate"], y, strict=True))
        alt.append(f"{name}: {curve} requests/s.")
    if limit is not None:
        figure.add_limit(limit, highest)
        alt.append(f"The limit is {short(limit)}.")
    figure.add_vline(x=now_per_s, line={**LIMIT_LINE, "dash": "dot"}, annotation_text="today")
    alt.append(f"Today's load is {now_per_s:.3g} requests/s.")
    figure.update_xaxes(range=[0, 1.04 * max(now_per_s, points["rate"].max())])
    figure.update_layout(height=_LARGE_PX)
    figure.set_alt(" ".join(alt))
    return figure


def count_curves(answers: Sequence[Answer], target: SLOTarget, x: str, looks: Looks) -> Figure:
    """Draw the latency (of several limits, the worst beside its limit) against the count.

    Filled symbols hold the target, open ones miss it; bars are the intervals. What is overloaded
    has no latency that would last: a cross at the top.
    """
    figure = canvas(x, axis_title(target), _count_alt(answers, target, x))
    limit = scaled(target, 1.0)
    drawn = {answer.label: list(filter(_has_latency, answer.points)) for answer in answers}
    factors = [point.factor for points in drawn.values() for point in points]
    top = figure.add_limit(limit, scaled(target, max(factors, default=0.0)))
    for answer in answers:
        look = looks[answer.label]
        if points := drawn[answer.label]:
            _add(figure, answer.label, points, target, look)
        if overloaded := [point for point in answer.points if _is_overloaded(point)]:
            _add_overloaded(figure, answer.label, overloaded, 0.95 * top, look)
    points = [point for answer in answers for point in answer.points]
    in_view = [p.count for p in points if p.factor <= MOST_LIMITS or _is_overloaded(p)]
    counts = in_view or [point.count for point in points]
    if in_view:  # A candidate that never comes near the limit does not stretch the axis.
        pad = 0.05 * (max(in_view) - min(in_view)) or 0.5
        figure.update_xaxes(range=[min(in_view) - pad, max(in_view) + pad])
    if counts and max(counts) - min(counts) <= _MOST_TICKS and all(c == int(c) for c in counts):
        figure.update_xaxes(dtick=1)
    figure.update_layout(height=_LARGE_PX)
    return figure


def is_cut(answers: Sequence[Answer]) -> bool:
    """Return whether points lie above what is drawn."""
    points = (point for answer in answers for point in answer.points)
    return any(p.factor > MOST_LIMITS and not _is_overloaded(p) for p in points)


def _is_overloaded(point: CurvePoint) -> bool:
    return point.load is not None and point.load > 1


def _has_latency(point: CurvePoint) -> bool:
    return isfinite(point.factor) and not _is_overloaded(point)


def _add_overloaded(
    figure: Figure, label: str, points: Sequence[CurvePoint], y: float, look: Look
) -> None:
    """Mark counts at which more arrives than is served."""
    loads = [
        f"overloaded: load is {100 * (point.load or 0):.3g} % of the capacity" for point in points
    ]
    marker = {"symbol": "x", "size": 14, "color": look.colour}
    figure.add_scatter(
        x=[point.count for point in points], y=[y] * len(points), mode="markers+text",
        name=f"{escape_markup(label)}, overloaded", marker=marker, hovertext=loads,
        text=["overloaded"] * len(points), textposition="middle right", cliponaxis=False,
        hovertemplate=f"%{{x}}: %{{hovertext}}{OF_RUN}",
    )  # fmt: skip


def _add(
    figure: Figure, label: str, points: Sequence[CurvePoint], target: SLOTarget, look: Look
) -> None:
    factors = [point.factor for point in points]
    bars = error_bars(factors, [p.interval or (p.factor, p.factor) for p in points])
    for side in ("array", "arrayminus"):
        bars[side] = [scaled(target, length) for length in bars[side]]
    draws = [
        "" if point.holding is None else f"<br>holds in {point.holding} of {point.draws} draws"
        for point in points
    ]
    figure.add_scatter(
        x=[point.count for point in points], y=[scaled(target, factor) for factor in factors],
        name=escape_markup(label), mode="lines+markers", error_y=bars, line=look.line,
        marker=look.symbols([point.holds for point in points]), text=draws,
        hovertemplate=f"%{{x}}: %{{y:.4g}}%{{text}}{OF_RUN}",
    )  # fmt: skip


def _count_alt(answers: Sequence[Answer], target: SLOTarget, x: str) -> str:
    what = axis_title(target).replace(", ", " in ")
    texts = [f"{what} by {x}; the limit is {short(scaled(target, 1.0))}."]
    for answer in answers:
        curve = ", ".join(f"{_point_words(p, target)} at {p.count:g}" for p in answer.points)
        texts.append(f"{answer.label}: {curve or answer.problem or 'nothing yet'}.")
    return " ".join(texts)


def _point_words(point: CurvePoint, target: SLOTarget) -> str:
    return "overloaded" if _is_overloaded(point) else short(scaled(target, point.factor))
