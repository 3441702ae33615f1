"""Figures along the run: latencies, differences, output throughput, and how late the client was."""

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import (
    OF_RUN,
    Figure,
    FloatArray,
    Frames,
    bucket_edges,
    canvas,
    escape_markup,
    evenly,
    line_of,
    marker_of,
    note_sample,
    plot,
    set_alt,
    spoken,
    steps_of,
)
from servetwin.app.figures.palette import COLOURS, LIMIT_COLOUR, LIMIT_LINE, Look, Looks
from servetwin.app.words import METRICS, Metric
from servetwin.sim.records.metrics import duration_unit

MOST_POINTS = 1500
MEDIAN_BUCKETS = 40
ARRIVAL = "scheduled arrival, s"
_DIRECTIONS = (("faster", COLOURS[0], "circle", -1), ("slower", COLOURS[1], "x", 1))


def latency_over_time(
    requests: Frames, metric: str, looks: Looks, limit_s: float | None = None
) -> Figure:
    """Draw a point per finished request by its arrival (evenly sampled), and the running median.

    The median is of all requests, over a fortieth of the run each.
    """
    shown = METRICS[metric].fitting(
        [limit_s, *(of_run[metric].max() for of_run in requests.values())]
    )
    title = f"{shown.label} of requests by their arrival"
    figure = canvas(ARRIVAL, shown.title, _alt(requests, metric, shown), title)
    counts = {}
    for run, frame in requests.items():
        points = frame.loc[frame["status"] == "finished", ["scheduled_s", metric, "request_id"]]
        points = points.dropna().sort_values("scheduled_s")
        points["y"] = points[metric] * shown.factor
        counts[run] = _add_points(figure, run, points, marker_of(looks[run]))
        _add_medians(figure, run, points, looks[run])
    note_sample(figure, counts, "requests")
    _add_limit(figure, limit_s, shown)
    return figure


def live_latency(
    answers: pd.DataFrame,
    predicted: pd.DataFrame,
    metric: str,
    looks: Looks,
    limit_s: float | None = None,
) -> Figure:
    """Draw each answer of a running load test by when it was sent, beside the prediction's running
    median; ``looks`` has ``measured`` and ``predicted``."""
    shown = METRICS[metric].fitting([limit_s, answers[metric].max(), predicted[metric].max()])
    answered = answers.dropna(subset=[metric])
    points = evenly(answered, MOST_POINTS)
    title = f"{shown.label}: measured so far, and predicted"
    figure = canvas("sent, s", shown.title, _live_alt(answers, predicted, metric), title)
    note_sample(figure, {"": (len(points), len(answered))}, "answers")
    hover = f"%{{y:.4g}} {shown.unit}, sent at %{{x:.4g}} s<extra>measured</extra>"
    x, y, marker = points["sent_s"], points[metric] * shown.factor, marker_of(looks["measured"])
    plot(figure, "markers", "measured so far", x, y, hover, marker=marker)
    median = _rolling_median(predicted, metric)
    hover = f"%{{y:.4g}} {shown.unit} at %{{x:.4g}} s<extra>predicted</extra>"
    at_s, line = median.index, line_of(looks["predicted"])
    name = "predicted, running median"
    plot(figure, "lines", name, at_s, median * shown.factor, hover, line=line)
    _add_limit(figure, limit_s, shown)
    return figure


def differences_over_time(differences: Frames, metric: str, looks: Looks) -> Figure:
    """Draw predicted - measured of single requests by their arrival, evenly sampled.

    A frame has ``request_id``, ``scheduled_s`` and the metric with the suffix ``_difference``
    (``app.verdict.claims.compare_requests``).
    """
    found = (frame[f"{metric}_difference"].abs().max() for frame in differences.values())
    shown = METRICS[metric].fitting(found)
    y = f"predicted - measured {shown.title}"
    figure = canvas(ARRIVAL, y, "", f"{shown.label}: errors of requests")
    alt, counts = [f"{y} of single requests by their arrival."], {}
    for run, frame in differences.items():
        points = frame.dropna(subset=[f"{metric}_difference"]).sort_values("scheduled_s")
        points = points.assign(y=points[f"{metric}_difference"] * shown.factor)
        hover = f"%{{y:+.4g}} {shown.unit}"
        counts[run] = _add_points(figure, run, points, marker_of(looks[run]), hover)
        if len(points):
            alt.append(f"{run}: median {points['y'].median():+.4g} {shown.unit}.")
    note_sample(figure, counts, "requests")
    figure.add_hline(y=0, line=LIMIT_LINE)
    figure.layout.meta = {**figure.layout.meta, "alt": " ".join(alt)}
    return figure


def gains_over_time(found: pd.DataFrame, a: str, b: str) -> Figure:
    """Draw how much longer or shorter each request took under ``b`` than under ``a``, by arrival.

    ``found`` has ``request_id``, ``scheduled_s`` and ``difference`` (E2E latency, b - a, seconds).
    """
    faster, slower = (int((found["difference"] * sign > 0).sum()) for sign in (-1, 1))
    unit, factor = duration_unit([found["difference"].abs().max()])
    alt = (
        f"Difference of E2E latency in {unit} from {a} to {b} of every request by its arrival: "
        f"faster {faster:,}, slower {slower:,}."
    )
    title = f"Requests that get faster and slower from {a} to {b}"
    figure = canvas(ARRIVAL, f"E2E latency difference, {unit}", alt, title)
    shown = evenly(found, MOST_POINTS).assign(y=factor * found["difference"])
    note_sample(figure, {"": (len(shown), len(found))}, "requests")
    for name, colour, symbol, sign in _DIRECTIONS:
        marker = {"color": colour, "symbol": symbol, "size": 5, "opacity": 0.6}
        points = shown[shown["difference"] * sign > 0]
        _add_points(
            figure, f"{name} under {escape_markup(b)}", points, marker, f"%{{y:+.4g}} {unit}"
        )
    figure.add_hline(y=0, line={"color": LIMIT_COLOUR, "width": 1})
    figure.update_yaxes(rangemode="normal")
    return figure


def throughput_over_time(requests: Frames, looks: Looks) -> Figure:
    """Draw output tokens per second in a hundredth of the run each.

    The tokens of a request are spread evenly from its first to its last, for simulations and load
    tests alike.
    """
    figure = canvas("time, s", "output throughput, tokens/s", "", "Output throughput over time")
    alt = ["Output tokens per second over time."]
    for run, frame in requests.items():
        edges_s, rates_per_s = token_rates_per_s(frame)
        hover, line = "%{y:.4g} tokens/s at %{x:.4g} s" + OF_RUN, steps_of(looks[run])
        plot(figure, "lines", run, edges_s[:-1], rates_per_s, hover, line=line)
        alt.append(f"{run}: at most {spoken(rates_per_s.max(initial=0))}.")
    set_alt(figure, " ".join(alt))
    return figure


def schedule_lag(requests: Frames, looks: Looks) -> Figure:
    """Draw how late the load tester sent each request."""
    lags = ((frame["sent_s"] - frame["scheduled_s"]).max() for frame in requests.values())
    lag = METRICS["lag_s"].fitting(lags)
    figure = canvas(ARRIVAL, lag.title, "", "How late the client sent requests")
    alt, counts = ["How late each request was sent, by its arrival."], {}
    for run, frame in requests.items():
        points = frame[["scheduled_s", "sent_s", "request_id"]].dropna().sort_values("scheduled_s")
        points["y"] = (points["sent_s"] - points["scheduled_s"]) * lag.factor
        counts[run] = _add_points(figure, run, points, marker_of(looks[run]))
        if len(points):
            alt.append(f"{run}: at most {spoken(points['y'].max())} {lag.unit}.")
    note_sample(figure, counts, "requests")
    figure.layout.meta = {**figure.layout.meta, "alt": " ".join(alt)}
    return figure


def token_rates_per_s(requests: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
    """Return the edges of 100 buckets, and the output tokens/s of finished requests in each."""
    done = requests[requests["status"] == "finished"]
    if done.empty:
        return np.zeros(1), np.zeros(0)
    start_s, end_s = float(requests["scheduled_s"].min()), float(done["last_token_s"].max())
    edges_s = bucket_edges(start_s, end_s)
    tokens = _tokens_until(done, edges_s)
    tokens[0] = 0.0  # Tokens that are out at the very start count in the first bucket.
    return edges_s, np.diff(tokens) / np.diff(edges_s)


def _tokens_until(done: pd.DataFrame, at_s: FloatArray) -> FloatArray:
    """Return the output tokens out at each time: one at first_token, the others evenly."""
    first_s = done["first_token_s"].to_numpy()[:, None]
    span_s = done["last_token_s"].to_numpy()[:, None] - first_s
    progress = np.clip((at_s - first_s) / np.where(span_s > 0, span_s, 1.0), 0.0, 1.0)
    progress[(span_s <= 0) & (at_s >= first_s)] = 1.0
    others = done["output_tokens"].to_numpy(dtype=float) - 1
    found: FloatArray = (at_s >= first_s).sum(axis=0) + others @ progress
    return found


def _add_points(
    figure: Figure, name: str, points: pd.DataFrame, marker: object, value: str = "%{y:.4g}"
) -> tuple[int, int]:
    """Add ``y`` of ``points`` by arrival; ``value`` is how hovering shows it.

    Return how many of how many are shown.
    """
    shown = evenly(points, MOST_POINTS)
    hover = f"%{{text}}: {value} at %{{x:.4g}} s{OF_RUN}"
    ids = [escape_markup(request) for request in shown["request_id"]]
    options = {"text": ids, "marker": marker, "legendgroup": name}
    plot(figure, "markers", name, shown["scheduled_s"], shown["y"], hover, **options)
    return len(shown), len(points)


def _add_medians(figure: Figure, run: str, points: pd.DataFrame, look: Look) -> None:
    if points.empty:
        return
    at_s = points["scheduled_s"]
    edges_s = bucket_edges(float(at_s.min()), float(at_s.max()), MEDIAN_BUCKETS)
    centres_s = (edges_s[:-1] + edges_s[1:]) / 2
    buckets = np.searchsorted(edges_s, at_s, side="right").clip(1, MEDIAN_BUCKETS)
    medians = points["y"].groupby(buckets).median()
    x, hover = centres_s[medians.index.to_numpy() - 1], "median %{y:.4g} about %{x:.4g} s" + OF_RUN
    options = {"line": line_of(look), "legendgroup": run}
    plot(figure, "lines", f"{run}, running median", x, medians, hover, **options)


def _add_limit(figure: Figure, limit_s: float | None, metric: Metric) -> None:
    if limit_s is not None:
        limit = limit_s * metric.factor
        name = f"SLO {limit:.4g} {metric.unit}"
        figure.add_hline(y=limit, line=LIMIT_LINE, annotation_text=name)


def _rolling_median(predicted: pd.DataFrame, metric: str) -> pd.Series:
    done = predicted.dropna(subset=[metric]).sort_values("scheduled_s")
    window = max(5, len(done) // 25)
    median: pd.Series = done[metric].rolling(window, min_periods=1, center=True).median()
    median.index = pd.Index(done["scheduled_s"])
    return median


def _alt(requests: Frames, metric: str, shown: Metric) -> str:
    alt = [f"{shown.label} of every request by its arrival."]
    for run, frame in requests.items():
        values = frame.loc[frame["status"] == "finished", metric].dropna() * shown.factor
        middle, most = spoken(values.median()), spoken(values.max())
        said = f", median {middle}, at most {most} {shown.unit}"
        alt.append(f"{run}: {len(values):,} requests{said if len(values) else ''}.")
    return " ".join(alt)


def _live_alt(answers: pd.DataFrame, predicted: pd.DataFrame, metric: str) -> str:
    shown = METRICS[metric].fitting([answers[metric].median(), predicted[metric].median()])
    alt = f"{shown.label} of {len(answers):,} answers by when they were sent."
    for name, frame in (("measured", answers), ("predicted", predicted)):
        if frame[metric].notna().any():
            alt += f" {name}: median {frame[metric].median() * shown.factor:.4g} {shown.unit}."
    return alt
