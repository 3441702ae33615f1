"""Figures along the run: latencies, throughput, lag of the client, and the state of the server."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import (
    LIMIT_LINE,
    OF_RUN,
    Figure,
    FloatArray,
    Frames,
    Look,
    Looks,
    bucket_edges,
    canvas,
    escape_markup,
    evenly,
    in_words,
    looks,
    stacked_canvas,
)
from servetwin.app.words import METRICS, Metric, asset_table, short
from servetwin.sim.records.metrics import duration_unit

MOST_POINTS = 1500
MEDIAN_BUCKETS = 40
ARRIVAL = "scheduled arrival, s"
_DIRECTIONS = {"faster": -1, "slower": 1}


def latency_over_time(
    requests: Frames, metric: str, looks: Looks, limit_s: float | None = None
) -> Figure:
    """Draw a point per finished request by its arrival (evenly sampled), and the running median.

    The median is of all requests, over a fortieth of the run each.
    """
    longest_s = [limit_s, *(of_run[metric].max() for of_run in requests.values())]
    shown = METRICS[metric].fitting(longest_s)
    title = f"{shown.label} of requests by their arrival"
    done = {run: frame[frame["status"] == "finished"] for run, frame in requests.items()}
    points = {run: frame.assign(y=frame[metric] * shown.factor) for run, frame in done.items()}
    figure = _point_cloud(points, looks, title, shown.title, shown.unit, medians=True)
    _add_limit(figure, limit_s, shown)
    return figure


def differences_over_time(differences: Frames, metric: str, looks: Looks) -> Figure:
    """Draw predicted - measured of single requests by their arrival, evenly sampled.

    A frame has ``request_id``, ``scheduled_s`` and the metric with the suffix ``_difference``
    (``app.verdict.claims.compare_requests``).
    """
    column = f"{metric}_difference"
    shown = METRICS[metric].fitting(frame[column].abs().max() for frame in differences.values())
    points = {run: of.assign(y=of[column] * shown.factor) for run, of in differences.items()}
    y, value = f"predicted - measured {shown.title}", f"%{{y:+.4g}} {shown.unit}"
    title = f"{shown.label}: errors of requests"
    figure = _point_cloud(points, looks, title, y, shown.unit, value)
    figure.add_hline(y=0, line=LIMIT_LINE)
    return figure


def gains_over_time(found: pd.DataFrame, a: str, b: str) -> Figure:
    """Draw how much longer or shorter each request took under ``b`` than under ``a``, by arrival.

    ``found`` has ``request_id``, ``scheduled_s`` and ``difference`` (E2E latency, b - a, seconds).
    """
    unit, factor = duration_unit([found["difference"].abs().max()])
    known = found.assign(y=factor * found["difference"])
    points = {
        f"{name} under {escape_markup(b)}": known[sign * known["y"] > 0]
        for name, sign in _DIRECTIONS.items()
    }
    title, y = f"Requests that get faster and slower from {a} to {b}", "E2E latency difference"
    value = f"%{{y:+.4g}} {unit}"
    figure = _point_cloud(points, looks(points), title, f"{y}, {unit}", unit, value)
    figure.add_hline(y=0, line=LIMIT_LINE)
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
        hover, line = "%{y:.4g} tokens/s at %{x:.4g} s" + OF_RUN, looks[run].steps
        figure.plot("lines", run, edges_s[:-1], rates_per_s, hover, line=line)
        alt.append(f"{run}: at most {short(rates_per_s.max(initial=0))}.")
    figure.set_alt(" ".join(alt))
    return figure


def schedule_lag(requests: Frames, looks: Looks) -> Figure:
    """Draw how late the load tester sent each request."""
    lags_s = {run: of["sent_s"] - of["scheduled_s"] for run, of in requests.items()}
    lag = METRICS["lag_s"].fitting(lag_s.max() for lag_s in lags_s.values())
    points = {run: of.assign(y=lags_s[run] * lag.factor) for run, of in requests.items()}
    return _point_cloud(points, looks, "How late the client sent requests", lag.title, lag.unit)


def _point_cloud(
    points: Frames,
    looks: Looks,
    title: str,
    y: str,
    unit: str,
    value: str = "%{y:.4g}",
    *,
    medians: bool = False,
) -> Figure:
    """Draw ``y`` of the requests of each run by their arrival; hovering shows it as ``value``."""
    alt, counts = [f"{y} of single requests by their arrival."], {}
    figure = canvas(ARRIVAL, y, "", title)
    for run, frame in points.items():
        known = frame[["scheduled_s", "y", "request_id"]].dropna().sort_values("scheduled_s")
        shown = evenly(known, MOST_POINTS)
        counts[run] = len(shown), len(known)
        ids = [escape_markup(request) for request in shown["request_id"]]
        options = {"text": ids, "marker": looks[run].points, "legendgroup": run}
        hover = f"%{{text}}: {value} at %{{x:.4g}} s{OF_RUN}"
        figure.plot("markers", run, shown["scheduled_s"], shown["y"], hover, **options)
        alt.append(f"{run}: {len(known):,} requests, {in_words(known['y'], unit)}.")
        if medians:
            _add_medians(figure, run, known, looks[run])
    figure.note_sample(counts, "requests")
    figure.set_alt(" ".join(alt))
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
    tokens: FloatArray = (at_s >= first_s).sum(axis=0) + others @ progress
    return tokens


def _add_medians(figure: Figure, run: str, points: pd.DataFrame, look: Look) -> None:
    if points.empty:
        return
    at_s = points["scheduled_s"]
    edges_s = bucket_edges(float(at_s.min()), float(at_s.max()), MEDIAN_BUCKETS)
    centres_s = (edges_s[:-1] + edges_s[1:]) / 2
    buckets = np.searchsorted(edges_s, at_s, side="right").clip(1, MEDIAN_BUCKETS)
    medians = points["y"].groupby(buckets).median()
    x, hover = centres_s[medians.index.to_numpy() - 1], "median %{y:.4g} about %{x:.4g} s" + OF_RUN
    options = {"line": look.line, "legendgroup": run}
    figure.plot("lines", f"{run}, running median", x, medians, hover, **options)


def _add_limit(figure: Figure, limit_s: float | None, metric: Metric) -> None:
    if limit_s is not None:
        limit = limit_s * metric.factor
        name = f"SLO {limit:.4g} {metric.unit}"
        figure.add_hline(y=limit, line=LIMIT_LINE, annotation_text=name)


MOMENTS = 600
# Up to so many requests an axis has whole numbers: plotly's own ticks would be halves.
_FEW = 4
# Column, title, factor, and how a peak is told.
Panel = tuple[str, str, float, str]
_PANELS: list[Panel] = asset_table("words.yaml")["server_panels"]
_DAY: list[Panel] = asset_table("words.yaml")["day_panels"]
_STEP_COLUMNS = {"start_s", "end_s", "running", "waiting", "free_kv_tokens", "replica"}


def state_of_steps(steps: pd.DataFrame, kv_tokens: int | None) -> pd.DataFrame:
    """Return the state at 600 moments, over all replicas; ``kv_tokens`` is the KV memory of each,
    None where it is not known.

    Between steps a replica has nothing to do. Memory counts as used when it cannot be given out,
    so a cached prefix that no sequence uses now does not.
    """
    if steps.empty or not set(steps) >= _STEP_COLUMNS:  # of an older version
        return pd.DataFrame(columns=["at_s", *(name for name, *_ in _PANELS)], dtype=float)
    at_s = bucket_edges(float(steps["start_s"].min()), float(steps["end_s"].max()), MOMENTS)
    replicas = [_state_of_replica(of, at_s, kv_tokens) for _, of in steps.groupby("replica")]
    total = sum(replicas[1:], start=replicas[0])
    total["kv_usage"] /= len(replicas)
    total.insert(0, "at_s", at_s)
    return total


def server_over_time(states: Frames, looks: Looks) -> Figure:
    """Draw three panels on one time axis; a panel that a run has no data for stays empty."""
    title = "Requests running and waiting, and KV memory in use"
    figure = in_panels(states, looks, _PANELS, title)
    for row, (name, *_) in enumerate(_PANELS[:2], start=1):
        if max((state[name].max() for state in states.values()), default=0) <= _FEW:
            figure.update_yaxes(dtick=1, row=row, col=1)
    if any(len(state) > MOMENTS for state in states.values()):
        figure.add_note(f"Downsampled to {MOMENTS + 1} points")
    return figure


def in_panels(states: Frames, looks: Looks, panels: Sequence[Panel], title: str) -> Figure:
    """Draw a panel for each column on one time axis, ``at_s``; a value lasts until the next."""
    peaks = [_peak(run, state, panels) for run, state in states.items()]
    alt = f"{title}, over time. {' '.join(peaks)}"
    figure = stacked_canvas("time, s", [panel for _, panel, *_ in panels], alt, title=title)
    for run, state in states.items():
        for row, (name, _, factor, _) in enumerate(panels, start=1):
            hover, y = "%{y:.4g} at %{x:.4g} s" + OF_RUN, state[name] * factor
            place = {"legendgroup": run, "showlegend": row == 1, "row": row, "col": 1}
            figure.plot("lines", run, state["at_s"], y, hover, line=looks[run].steps, **place)
    return figure


def day_over_time(courses: Frames, price: float | None) -> Figure:
    """Draw load, replicas, latency and cost over a day (``DayFleet.course``), a line per fleet."""
    panels = [(*panel[:2], price or 1.0, panel[3]) for panel in _DAY[3 + (price is None) :]]
    figure = in_panels(courses, looks(courses), [*_DAY[:3], panels[0]], "A day")
    figure.add_hline(y=100, line=LIMIT_LINE, annotation_text="limit", row=3, col=1)
    return figure


def _state_of_replica(steps: pd.DataFrame, at_s: FloatArray, kv_tokens: int | None) -> pd.DataFrame:
    ordered = steps.sort_values("start_s")
    rows = np.searchsorted(ordered["start_s"], at_s, side="right") - 1
    now = ordered.iloc[rows.clip(0)]
    busy = (rows >= 0) & (at_s < now["end_s"].to_numpy())
    used = 1 - now["free_kv_tokens"].to_numpy() / (kv_tokens or np.nan)
    counts = {name: np.where(busy, now[name], 0.0) for name in ("running", "waiting")}
    return pd.DataFrame({**counts, "kv_usage": used * busy})


def _peak(run: str, state: pd.DataFrame, panels: Sequence[Panel]) -> str:
    known = [
        f"{short(factor * state[name].max())} {words}"
        for name, _, factor, words in panels
        if state[name].notna().any()
    ]
    when = " at the points shown" if len(state) > MOMENTS else ""
    return f"{run}: at most {', '.join(known) or 'nothing known'}{when}."
