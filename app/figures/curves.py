"""Curves: cumulative distributions, and the step times of a profile."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import (
    LIMIT_LINE,
    LOG_AXIS,
    OF_RUN,
    Figure,
    Frames,
    Look,
    Looks,
    as_float32,
    canvas,
    cdf_points,
    in_words,
)
from servetwin.app.words import METRICS, Metric, short
from servetwin.sim.records.metrics import gaps_s


def latency_cdf(
    requests: Frames, metric: str, looks: Looks, limit_s: float | None = None
) -> Figure:
    """Draw the CDF of ``ttft_s``, ``tpot_s``, ``e2e_s`` ... of finished requests, one line per run.

    ``limit_s`` draws the SLO.
    """
    return _cdf({n: _finished(r)[metric] for n, r in requests.items()}, metric, looks, limit_s)


def chunk_gap_cdf(requests: Frames, looks: Looks) -> Figure:
    """Draw the CDF of the gaps between chunks (ITL), of runs that have ``chunk_s``: load tests."""
    gaps = {n: pd.Series(gaps_s(_finished(r)["chunk_s"])) for n, r in requests.items()}
    return _cdf(gaps, "gap_s", looks, None)


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
        figure.plot("lines", run, x, 100 * shares, hover, line=looks[run].line)
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
    parts += [f"{n}: {in_words(v * metric.factor, metric.unit)}." for n, v in values.items()]
    if limit_s is not None:
        parts.append(f"The SLO is {short(limit_s * metric.factor)} {metric.unit}.")
    return " ".join(parts)


def step_time_curve(curves: Frames, x: str, looks: Looks) -> Figure:
    """Draw the fitted duration of a step over ``x``, with the spread of single steps.

    The line is dotted where nothing was measured.

    Columns of a curve: ``x``, ``seconds``, ``low_s``, ``high_s``, ``measured`` (whether all its
    features are within what was measured).
    """
    title = f"Duration of a step by {x.rpartition(', ')[0] or x}"
    figure = canvas(x, "duration of a step, ms", "", title)
    alt = [f"Fitted duration of a step over {x}."]
    for name, curve in curves.items():
        look = looks[name]
        _add_spread(figure, curve, look)
        inside = curve["measured"].to_numpy(bool)
        last = max(int(inside.sum()) - 1, 0)
        beyond = (curve.iloc[last:], "dot", f"{name}, not measured")
        for part, dash, words in ((curve[inside], look.dash, name), beyond):
            if len(part) > 1:
                figure.add_scatter(
                    x=part["x"].to_numpy(float), y=as_float32(1e3 * part["seconds"]), name=words,
                    mode="lines", line={**look.line, "dash": dash}, legendgroup=name,
                    hovertemplate="%{y:.4g} ms at %{x:.4g}<extra>" + words + "</extra>",
                )  # fmt: skip
        ends_ms = 1e3 * curve["seconds"].iloc[[0, -1]]
        alt.append(f"{name}: {ends_ms.min():.3g} to {ends_ms.max():.3g} ms.")
    figure.set_alt(" ".join(alt))
    return figure


def _add_spread(figure: Figure, curve: pd.DataFrame, look: Look) -> None:
    if np.allclose(curve["low_s"], curve["high_s"]):
        return
    red, green, blue = (int(look.colour[place : place + 2], 16) for place in (1, 3, 5))
    low, high = (as_float32(1e3 * curve[bound]) for bound in ("low_s", "high_s"))
    fill = f"rgba({red},{green},{blue},0.18)"
    figure.add_band("nine of ten steps", curve["x"].to_numpy(float), (low, high), fill)
