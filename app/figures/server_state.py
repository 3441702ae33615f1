"""What the server was doing: requests running and waiting, and KV memory in use, on one axis.

A state is a frame of ``at_s``, ``running``, ``waiting``, ``kv_usage`` (0 to 1). A simulation's
comes from its steps, a load test's from what it scraped (``loadtest.report.server_metrics``).
"""

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import (
    OF_RUN,
    Figure,
    FloatArray,
    Frames,
    add_note,
    bucket_edges,
    plot,
    spoken,
    stacked_canvas,
    steps_of,
)
from servetwin.app.figures.palette import Looks

MOMENTS = 600
_FEW = 4
"""Up to so many requests an axis has whole numbers: plotly's own ticks would be halves."""
_PANELS = (
    ("running", "running, requests", 1.0),
    ("waiting", "waiting, requests", 1.0),
    ("kv_usage", "KV memory in use, %", 100.0),
)
_PEAKS = ("requests running", "waiting", "% of the KV memory in use")
_STEP_COLUMNS = {"start_s", "end_s", "running", "waiting", "free_kv_tokens", "replica"}


def state_of_steps(steps: pd.DataFrame, kv_tokens: int | None) -> pd.DataFrame:
    """Return the state at 600 moments, over all replicas; ``kv_tokens`` is the KV memory of each,
    None where it is not known.

    Between steps a replica has nothing to do. Memory counts as used when it cannot be given out,
    so a cached prefix that no sequence uses now does not.
    """
    if steps.empty or not set(steps) >= _STEP_COLUMNS:  # of an older version
        return pd.DataFrame(columns=["at_s", *(name for name, _, _ in _PANELS)], dtype=float)
    at_s = bucket_edges(float(steps["start_s"].min()), float(steps["end_s"].max()), MOMENTS)
    replicas = [_state_of_replica(of, at_s, kv_tokens) for _, of in steps.groupby("replica")]
    total = sum(replicas[1:], start=replicas[0])
    total["kv_usage"] /= len(replicas)
    total.insert(0, "at_s", at_s)
    return total


def server_over_time(states: Frames, looks: Looks) -> Figure:
    """Draw three panels on one time axis; a panel that a run has no data for stays empty."""
    peaks = [_peak(run, state) for run, state in states.items()]
    alt = f"Requests running and waiting, and KV memory in use, over time. {' '.join(peaks)}"
    title = "Requests running and waiting, and KV memory in use"
    figure = stacked_canvas("time, s", [panel for _, panel, _ in _PANELS], alt, title=title)
    for run, state in states.items():
        for row, (name, _, factor) in enumerate(_PANELS, start=1):
            hover, y = "%{y:.4g} at %{x:.4g} s" + OF_RUN, state[name] * factor
            place = {"legendgroup": run, "showlegend": row == 1, "row": row, "col": 1}
            plot(figure, "lines", run, state["at_s"], y, hover, line=steps_of(looks[run]), **place)
    for row, (name, _, _) in enumerate(_PANELS[:2], start=1):
        if max((state[name].max() for state in states.values()), default=0) <= _FEW:
            figure.update_yaxes(dtick=1, row=row, col=1)
    if any(len(state) > MOMENTS for state in states.values()):
        add_note(figure, f"Downsampled to {MOMENTS + 1} points")
    return figure


def _state_of_replica(steps: pd.DataFrame, at_s: FloatArray, kv_tokens: int | None) -> pd.DataFrame:
    ordered = steps.sort_values("start_s")
    rows = np.searchsorted(ordered["start_s"], at_s, side="right") - 1
    now = ordered.iloc[rows.clip(0)]
    busy = (rows >= 0) & (at_s < now["end_s"].to_numpy())
    used = 1 - now["free_kv_tokens"].to_numpy() / (kv_tokens or np.nan)
    counts = {name: np.where(busy, now[name], 0.0) for name in ("running", "waiting")}
    return pd.DataFrame({**counts, "kv_usage": used * busy})


def _peak(run: str, state: pd.DataFrame) -> str:
    known = [
        f"{spoken(factor * state[name].max())} {words}"
        for (name, _, factor), words in zip(_PANELS, _PEAKS, strict=True)
        if state[name].notna().any()
    ]
    when = " at the points shown" if len(state) > MOMENTS else ""
    return f"{run}: at most {', '.join(known) or 'nothing known'}{when}."
