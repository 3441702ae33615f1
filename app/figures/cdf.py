"""Cumulative distributions: the share of the requests at or below a latency."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import (
    LOG_AXIS,
    OF_RUN,
    Figure,
    Frames,
    canvas,
    cdf_points,
    line_of,
    plot,
    spoken,
)
from servetwin.app.figures.palette import LIMIT_LINE, Looks
from servetwin.app.words import METRICS, Metric


def latency_cdf(
    requests: Frames, metric: str, looks: Looks, limit_s: float | None = None
) -> Figure:
    """Draw the CDF of ``ttft_s``, ``tpot_s``, ``e2e_s`` ... of finished requests, one line per run.

    ``limit_s`` draws the SLO.
    """
    return _cdf({n: _finished(r)[metric] for n, r in requests.items()}, metric, looks, limit_s)


def chunk_gap_cdf(requests: Frames, looks: Looks) -> Figure:
    """Draw the CDF of the gaps between chunks (ITL), of runs that have ``chunk_s``: load tests."""
    return _cdf({n: gaps_s(r) for n, r in requests.items()}, "gap_s", looks, None)


def gaps_s(requests: pd.DataFrame) -> pd.Series:
    """Return the gaps between consecutive chunks of all finished requests."""
    gaps = [np.diff(stamps) for stamps in _finished(requests)["chunk_s"]]
    return pd.Series(np.concatenate(gaps) if gaps else [], dtype=float)


def _finished(requests: pd.DataFrame) -> pd.DataFrame:
    return requests[requests["status"] == "finished"]


def _cdf(values: Mapping[str, pd.Series], name: str, looks: Looks, limit_s: float | None) -> Figure:
    metric = METRICS[name].fitting([limit_s, *(of_run.max() for of_run in values.values())])
    title = f"Distribution of {metric.label}"
    figure = canvas(metric.title, "share of requests, %", _alt(values, metric, limit_s), title)
    smallest = np.inf
    for run, of_run in values.items():
        x, shares = cdf_points(of_run * metric.factor)
        smallest = min(smallest, x.min(initial=np.inf))
        hover = f"%{{y:.1f}} % within %{{x:.4g}} {metric.unit}{OF_RUN}"
        plot(figure, "lines", run, x, 100 * shares, hover, line=line_of(looks[run]))
    if limit_s is not None:
        _add_limit(figure, limit_s * metric.factor, metric)
    figure.update_xaxes(**(LOG_AXIS if 0 < smallest < np.inf else {"type": "linear"}))
    figure.update_yaxes(range=[0, 101])
    return figure


def _add_limit(figure: Figure, limit: float, metric: Metric) -> None:
    """Add a line of two points: unlike a shape it is in the legend, and right on a log axis."""
    name = f"SLO {limit:.4g} {metric.unit}"
    line, hover = {**LIMIT_LINE, "width": 1.5}, f"{name}<extra></extra>"
    ends = {"x": [limit, limit], "y": [0, 100]}
    figure.add_scatter(**ends, name=name, mode="lines", line=line, hovertemplate=hover)


def _alt(values: Mapping[str, pd.Series], metric: Metric, limit_s: float | None) -> str:
    parts = [f"Cumulative distribution of {metric.label} in {metric.unit}."]
    for run, of_run in values.items():
        middle, high = (of_run.quantile(q) * metric.factor for q in (0.5, 0.99))
        known = of_run.notna().any()
        found = (
            f"median {spoken(float(middle))}, p99 {spoken(float(high))}" if known else "no value"
        )
        parts.append(f"{run}: {found}.")
    if limit_s is not None:
        parts.append(f"The SLO is {spoken(limit_s * metric.factor)}.")
    return " ".join(parts)
