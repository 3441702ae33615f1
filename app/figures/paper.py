"""Figures of a sweep for a paper: a figure of its points against the rate, a column wide.

Lines differ in dash and marker as well as in colour, and the first colours in how dark they are,
so that a grey print tells them apart.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import pandas as pd

from servetwin.app.figures import canvas
from servetwin.app.words import METRICS, asset_table
from servetwin.sim.records.metrics import LATENCIES, SLO
from servetwin.workloads.errors import ServetwinError, did_you_mean

_PAPER = asset_table("paper.yaml")
_POINTS = ("p50", "p90", "p99")
# Column and metric of each figure, by its name.
CURVES: Mapping[str, tuple[str, str]] = {
    **{f"{p}_{name[:-2]}": (f"{name}_{p}", name) for p in _POINTS for name in LATENCIES},
    **{name: (column, column) for name, column in _PAPER["totals"].items()},
}


def require_curve(name: str, rates: int) -> None:
    """Raise ``ServetwinError`` for an unknown figure, or one of fewer than two ``rates``."""
    if name not in CURVES:
        raise ServetwinError(f"no figure {name!r} of a sweep; {did_you_mean(name, CURVES)}")
    if rates < 2:
        raise ServetwinError(f"{name}: a curve needs two rates or more (--rates, rates_per_s)")


def curve(points: pd.DataFrame, name: str, keys: Sequence[str], slo: SLO | None) -> Any:
    """Draw one of ``CURVES`` against the rate, a line for each combination of the ``keys``.

    Returns a plotly figure, with the limit of the SLO on that latency. Raises ``ServetwinError`` as
    ``require_curve``.
    """
    require_curve(name, points["rate_per_s"].nunique())
    column, key = CURVES[name]
    labels = [_label(row, keys) for row in points.to_dict("records")]
    drawn = points.assign(line=labels).dropna(subset=[column, "rate_per_s"])
    metric = METRICS[key].fitting(drawn[column])
    title = f"{name.partition('_')[0]} {metric.title}" if key in LATENCIES else metric.title
    figure = canvas.canvas("request rate, requests/s", title, f"{title} against the request rate.")
    looks = zip(cycle(_PAPER["inks"]), cycle(canvas.DASHES), cycle(canvas.SYMBOLS), strict=False)
    for name_of_line, (ink, dash, symbol) in zip(dict.fromkeys(labels), looks, strict=False):
        rows = drawn[drawn["line"] == name_of_line].sort_values("rate_per_s")
        figure.add_scatter(
            x=rows["rate_per_s"], y=rows[column] * metric.factor, mode="lines+markers",
            line={"color": ink, "dash": dash, "width": 1.3}, marker={"symbol": symbol, "size": 5},
            name=canvas.escape_markup(name_of_line),
        )  # fmt: skip
    if (limit_s := getattr(slo, key, None)) is not None and len(drawn):
        highest = float(drawn[column].max())
        figure.add_limit(limit_s * metric.factor, highest * metric.factor)
    return figure.update_layout(**_PAPER["layout"], showlegend=len(figure.data) > 1)


def _label(row: Mapping[Any, Any], keys: Sequence[str]) -> str:
    """Return the name of a line: the value that people gave, or several with their keys."""
    return str(row[keys[0]]) if len(keys) == 1 else ", ".join(f"{k} {row[k]}" for k in keys)
