"""Along the run: latencies, output throughput, and how late the client was."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from app.figures.canvas import Figure, canvas, line_of, marker_of
from app.figures.palette import LIMIT_COLOUR, Look
from app.figures.sampling import FloatArray, as_float32, bucket_edges, evenly
from app.figures.text import plain
from app.text.metric_labels import METRICS

MOST_POINTS = 1500
MIDDLE_BUCKETS = 40
ARRIVAL = "scheduled arrival, s"


def latency_over_time(
    requests: Mapping[str, pd.DataFrame],
    metric: str,
    looks: Mapping[str, Look],
    limit_s: float | None = None,
) -> Figure:
    """A point per finished request by its arrival (evenly sampled), and the running median.

    The median is of all requests, over a fortieth of the run each.
    """
    shown = METRICS[metric]
    figure = canvas(ARRIVAL, shown.title, _alt(requests, metric))
    for run, frame in requests.items():
        points = frame.loc[frame["status"] == "finished", ["scheduled_s", metric, "request_id"]]
        points = points.dropna().sort_values("scheduled_s")
        _add_points(figure, run, points.assign(y=points[metric] * shown.factor), looks[run])
        _add_medians(figure, run, points["scheduled_s"], points[metric] * shown.factor, looks[run])
    if limit_s is not None:
        limit = limit_s * shown.factor
        line = {"color": LIMIT_COLOUR, "dash": "dash"}
        figure.add_hline(y=limit, line=line, annotation_text=f"SLO {limit:.4g} {shown.unit}")
    return figure


def throughput_over_time(requests: Mapping[str, pd.DataFrame], looks: Mapping[str, Look]) -> Figure:
    """Output tokens per second in a hundredth of the run each.

    The tokens of a request are spread evenly from its first to its last, for simulations and load
    tests alike.
    """
    figure = canvas("time, s", "output throughput, tokens/s", "")
    said = ["Output tokens per second over time."]
    for run, frame in requests.items():
        edges_s, rates_per_s = token_rates_per_s(frame)
        figure.add_scatter(
            x=as_float32(edges_s[:-1]),
            y=as_float32(rates_per_s),
            name=run,
            mode="lines",
            line={**line_of(looks[run]), "shape": "hv"},
            hovertemplate="%{y:.4g} tokens/s at %{x:.4g} s<extra>%{fullData.name}</extra>",
        )
        said.append(f"{run}: at most {rates_per_s.max(initial=0):.4g}.")
    figure.update_layout(meta={"alt": " ".join(said)})
    return figure


def schedule_lag(requests: Mapping[str, pd.DataFrame], looks: Mapping[str, Look]) -> Figure:
    """How late each request was sent: the load tester's own figure."""
    lag = METRICS["lag_s"]
    figure = canvas(ARRIVAL, lag.title, "How late each request was sent, over time.")
    for run, frame in requests.items():
        points = frame[["scheduled_s", "sent_s", "request_id"]].dropna().sort_values("scheduled_s")
        late = (points["sent_s"] - points["scheduled_s"]) * lag.factor
        _add_points(figure, run, points.assign(y=late), looks[run])
    return figure


def token_rates_per_s(requests: pd.DataFrame, buckets: int = 100) -> tuple[FloatArray, FloatArray]:
    """Edges of the buckets, and output tokens per second in each, of requests that finished."""
    done = requests[requests["status"] == "finished"]
    if done.empty:
        return np.zeros(1), np.zeros(0)
    edges_s = bucket_edges(float(requests["scheduled_s"].min()), float(done["last_token_s"].max()))
    tokens = _tokens_until(done, edges_s)
    tokens[0] = 0.0  # what is out at the very start counts in the first bucket
    return edges_s, np.diff(tokens) / np.diff(edges_s)


def _tokens_until(done: pd.DataFrame, at_s: FloatArray) -> FloatArray:
    """How many output tokens were out at each time: one at first_token, the others in line."""
    first_s = done["first_token_s"].to_numpy()[:, None]
    span_s = done["last_token_s"].to_numpy()[:, None] - first_s
    progress = np.clip((at_s - first_s) / np.where(span_s > 0, span_s, 1.0), 0.0, 1.0)
    progress[(span_s <= 0) & (at_s >= first_s)] = 1.0
    others = done["output_tokens"].to_numpy(dtype=float) - 1
    found: FloatArray = (at_s >= first_s).sum(axis=0) + others @ progress
    return found


def _add_points(figure: Figure, run: str, points: pd.DataFrame, look: Look) -> None:
    shown = evenly(points, MOST_POINTS)
    figure.add_scatter(
        x=as_float32(shown["scheduled_s"]),
        y=as_float32(shown["y"]),
        text=[plain(name) for name in shown["request_id"]],
        name=run,
        legendgroup=run,
        mode="markers",
        marker=marker_of(look),
        hovertemplate="%{text}: %{y:.4g} at %{x:.4g} s<extra>%{fullData.name}</extra>",
    )


def _add_medians(figure: Figure, run: str, at_s: pd.Series, y: pd.Series, look: Look) -> None:
    if at_s.empty:
        return
    edges_s = bucket_edges(float(at_s.min()), float(at_s.max()), MIDDLE_BUCKETS)
    middles_s = (edges_s[:-1] + edges_s[1:]) / 2
    medians = y.groupby(
        np.searchsorted(edges_s, at_s, side="right").clip(1, MIDDLE_BUCKETS)
    ).median()
    figure.add_scatter(
        x=as_float32(middles_s[medians.index.to_numpy() - 1]),
        y=as_float32(medians),
        name=f"{run}, running median",
        legendgroup=run,
        mode="lines",
        line=line_of(look),
        hovertemplate="median %{y:.4g} about %{x:.4g} s<extra>%{fullData.name}</extra>",
    )


def _alt(requests: Mapping[str, pd.DataFrame], metric: str) -> str:
    counts = ", ".join(f"{run}: {frame[metric].count()}" for run, frame in requests.items())
    return f"{METRICS[metric].label} of every request by its arrival; requests of {counts}."
