"""Curves of a sweep over load levels: what clients see by the load that is offered."""

from collections.abc import Callable, Sequence

from servetwin.app.figures.canvas import Figure, canvas
from servetwin.app.figures.palette import COLOURS, LIMIT_COLOUR
from servetwin.app.reports.metric_labels import METRICS, Metric
from servetwin.loadtest.sweep.level import COMPLETED, SHARE, TOKENS, Level
from servetwin.loadtest.sweep.sweep import Sweep

_MEASURED = {"color": COLOURS[0], "width": 2}
_PREDICTED = {"color": COLOURS[1], "width": 2, "dash": "dash"}
_SHARE = Metric("share of requests within the SLO", "", 1.0, "")
_PLAIN = Metric("output tokens/s", "", 1.0, "")
Place = Callable[[Level], float | None]


def level_curves(sweep: Sweep) -> list[tuple[str, Figure]]:
    """Return title and figure of each curve: attainment, latencies, throughput."""
    latencies = [
        (
            f"{METRICS[key].label}, {point}",
            _curve(sweep, f"{key}.{point}", _shown(key, point, sweep)),
        )
        for key in ("ttft_s", "tpot_s")
        for point in ("p50", "p99")
    ]
    tokens = ("Output throughput", _curve(sweep, TOKENS, _PLAIN))
    return [*_attainment(sweep), *latencies, tokens]


def _attainment(sweep: Sweep) -> list[tuple[str, Figure]]:
    if sweep.settings.slo is None:
        return []
    figure = _curve(sweep, SHARE, _SHARE)
    levels = [level for level in _placed(sweep) if level.attainment]
    found = [level.attainment for level in levels if level.attainment]
    figure.update_traces(
        error_y={
            "type": "data",
            "array": [one.high - one.share for one in found],
            "arrayminus": [one.share - one.low for one in found],
        },
        selector={"name": "measured"},
    )
    figure.add_hline(y=sweep.settings.wanted, line={"color": LIMIT_COLOUR, "dash": "dot"})
    if sweep.knee and sweep.knee.rate_per_s is not None:
        figure.add_vline(x=sweep.knee.rate_per_s, line={"color": LIMIT_COLOUR, "dash": "dot"})
    return [("Share of requests within the SLO", figure)]


def _shown(name: str, point: str, sweep: Sweep) -> Metric:
    """Return a metric in the unit in which a figure of it is shown."""
    rows = (row for level in sweep.levels for row in (level.figures, level.predicted) if row)
    return METRICS[name].fitting(row[f"{name}.{point}"] for row in rows)


def _curve(sweep: Sweep, key: str, metric: Metric) -> Figure:
    """Draw a figure of the measured levels over their load, and of the predicted ones."""
    levels, place = _placed(sweep), _place(sweep)
    title, factor = metric.title, metric.factor
    x = "users" if sweep.settings.of == "users" else "requests/s offered (all at once: completed)"
    figure = canvas(x, title, _alt(levels, key, title), f"{title} by offered load")
    for name, line, of in (
        ("measured", _MEASURED, [level.figures for level in levels]),
        ("predicted", _PREDICTED, [level.predicted for level in levels]),
    ):
        points = [
            (place(level), factor * value)
            for level, figures in zip(levels, of, strict=True)
            if figures and (value := figures[key]) is not None
        ]
        if points:
            xs, ys = zip(*points, strict=True)
            figure.add_scatter(x=xs, y=ys, mode="lines+markers", name=name, line=line)
    return figure


def _placed(sweep: Sweep) -> list[Level]:
    """Return the levels that count and have a place on the axis, in its order."""
    place = _place(sweep)
    levels = [level for level in sweep.levels if level.counts and place(level) is not None]
    return sorted(levels, key=lambda level: place(level) or 0.0)


def _place(sweep: Sweep) -> Place:
    if sweep.settings.of == "users":
        return lambda level: level.plan.users
    return lambda level: level.plan.rate_per_s or level.figures[COMPLETED]


def _alt(levels: Sequence[Level], key: str, title: str) -> str:
    said = ", ".join(
        f"{level.plan.load}: {value:.4g}"
        for level in levels
        if (value := level.figures[key]) is not None
    )
    return f"{title} by offered load. {said}."
