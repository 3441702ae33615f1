"""Charts of techniques: the roofline (Williams 2009), and quality against throughput."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import (
    COLOURS,
    DASHES,
    LIMIT_COLOUR,
    LIMIT_LINE,
    Figure,
    canvas,
    escape_markup,
    looks,
    plot,
)
from servetwin.app.words import asset_table

_TERA = 1e12
_OTHER = "x"
_PHASES = {"decode": (COLOURS[0], ""), "prefill": (COLOURS[1], "-open")}
_LEAST_PX, _MOST_PX = 9, 30


def roofline(
    operators: pd.DataFrame, peaks_flops_per_s: Mapping[str, float], bytes_per_s: float
) -> Figure:
    """Draw a dot per operator that computes, under a roof per number format.

    ``operators`` has ``phase`` (decode: filled; prefill: open), ``operator``,
    ``intensity_flops_per_byte``, ``flops_per_s``, ``share`` of its step (a larger dot), ``bound``.
    """
    dots = operators[operators["flops_per_s"] > 0]
    title = "Roofline: operators below the limits of the device"
    y = "attained, TFLOP/s per device"
    figure = canvas("intensity, FLOP/byte", y, _roofline_alt(dots), title)
    left, right = _span(dots["intensity_flops_per_byte"], peaks_flops_per_s, bytes_per_s)
    for place, (name, peak) in enumerate(peaks_flops_per_s.items()):
        _add_roof(figure, name, peak, bytes_per_s, left, right, DASHES[place % len(DASHES)])
    for _, dot in dots.iterrows():
        _add_dot(figure, dot)
    figure.update_xaxes(type="log", dtick=1, exponentformat="power")
    figure.update_yaxes(type="log", dtick=1, rangemode="normal", exponentformat="power")
    figure.update_layout(height=460)
    return figure


def _add_roof(
    figure: Figure, name: str, peak: float, bytes_per_s: float, left: float, right: float, dash: str
) -> None:
    ridge, top = peak / bytes_per_s, peak / _TERA
    label = f"{name}: {top:,.4g} TFLOP/s from {ridge:,.0f} FLOP/byte"
    x, y = [left, ridge, right], [left * bytes_per_s / _TERA, top, top]
    hover = "the device allows %{y:.4g} TFLOP/s at %{x:.4g} FLOP/byte<extra></extra>"
    plot(figure, "lines", label, x, y, hover, line={**LIMIT_LINE, "dash": dash, "width": 2})


def _add_dot(figure: Figure, dot: pd.Series) -> None:
    colour, style = _PHASES[dot["phase"]]
    label = dot["operator"].removeprefix(f"{dot['phase']} ")
    marker = {
        "color": colour,
        "symbol": asset_table("looks.yaml")["operators"].get(dot["operator"], _OTHER) + style,
        "size": _LEAST_PX + (_MOST_PX - _LEAST_PX) * float(np.sqrt(dot["share"])),
        "line": {"width": 2, "color": colour},
        "opacity": 0.85,
    }
    hover = (
        f"{dot['operator']} in {dot['phase']}: %{{y:.4g}} TFLOP/s at %{{x:.4g}} FLOP/byte, "
        f"{dot['bound']}-bound, {100 * dot['share']:.1f} % of the step<extra></extra>"
    )
    x, y = [dot["intensity_flops_per_byte"]], [dot["flops_per_s"] / _TERA]
    plot(figure, "markers", f"{dot['phase']}: {label}", x, y, hover, marker=marker)


def _span(
    intensities: pd.Series, peaks: Mapping[str, float], bytes_per_s: float
) -> tuple[float, float]:
    """Return a range from well left of the first dot to well right of the last dot and ridge."""
    ridges = [peak / bytes_per_s for peak in peaks.values()]
    return min([*intensities, 1.0]) / 3, 3 * max([*intensities, *ridges])


def _roofline_alt(dots: pd.DataFrame) -> str:
    bounds = [
        f"{dot.phase} {str(dot.operator).removeprefix(f'{dot.phase} ')}: {dot.bound}-bound"
        for dot in dots.itertuples()
    ]
    return f"Roofline with a dot per operator. {'; '.join(bounds)}."


QUALITY_METRICS = ("kept", "perplexity", "accuracy")
_LOOKS = looks(QUALITY_METRICS)
_X, _Y = "throughput_percent", "loss_percent"


def quality_against_throughput(points: pd.DataFrame) -> Figure:
    """Draw the relative loss of quality upwards against the gain in throughput to the right.

    ``points`` have ``technique``, ``metric`` (of ``QUALITY_METRICS``), both figures in per cent,
    ``on_front``, ``is_other_model`` and ``source``. Open symbols are those of another model. The
    front of each metric goes through what is kept as well.
    """
    title = "What techniques cost in quality, and gain in throughput"
    figure = canvas("throughput, % more than without", "loss of quality, %", _alt(points), title)
    for metric in QUALITY_METRICS[1:]:
        _add_front(figure, points, metric)
    for metric in QUALITY_METRICS:
        _add_points(figure, metric, points[points["metric"] == metric])
    figure.update_yaxes(rangemode="normal", zeroline=True)
    figure.update_layout(height=460)
    return figure


def _add_front(figure: Figure, points: pd.DataFrame, metric: str) -> None:
    comparable = points["metric"].isin(["kept", metric])
    front = points[points["on_front"] & comparable].sort_values([_X, _Y])
    if len(front) > 1:
        figure.add_scatter(
            x=front[_X], y=front[_Y], name=f"front, {metric}", mode="lines", hoverinfo="skip",
            line={"color": LIMIT_COLOUR, "width": 3, "dash": _LOOKS[metric].dash, "shape": "hv"},
            opacity=0.5,
        )  # fmt: skip


def _add_points(figure: Figure, metric: str, points: pd.DataFrame) -> None:
    if points.empty:
        return
    marker = _LOOKS[metric].symbols(~points["is_other_model"].astype(bool))
    hover = "%{customdata[0]}: %{y:.3g} % for %{x:+.3g} %<br>%{customdata[1]}<extra></extra>"
    names, sources = (points[column].map(escape_markup) for column in ("technique", "source"))
    options = {
        "marker": marker, "customdata": list(zip(names, sources, strict=True)),
        "text": list(names.where(points["on_front"].astype(bool), "")),
        "textposition": "top center",
    }  # fmt: skip
    plot(figure, "markers+text", metric, points[_X], points[_Y], hover, **options)


def _alt(points: pd.DataFrame) -> str:
    texts = [
        f"{row['technique']}: {row[_Y]:.3g} % for {row[_X]:+.3g} %"
        for _, row in points[points["on_front"]].iterrows()
    ]
    return (
        f"{len(points)} techniques: loss of quality against gain in throughput. On the front: "
        f"{', '.join(texts) or 'none'}."
    )
