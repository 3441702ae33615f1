"""Which requests a timeline shows, in which window, and what ran meanwhile."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.app.dashboard.timeline.timeline_run import TimelineRun
from servetwin.app.figures import TimelineData
from servetwin.app.figures.canvas import evenly

MOST_LINES = 120
_ARRIVALS = 60
"""Requests that arrive within the window that a page begins with."""

Window = tuple[float, float]


@dataclass(frozen=True, slots=True)
class VisibleRequests:
    """The rows of requests to draw, from the top, and a ``description`` of them."""

    rows: npt.NDArray[np.int64]
    window_s: Window
    description: str


def busiest_window(watched: TimelineRun) -> Window:
    """Return a window around the moment with most requests, long enough for 60 arrivals."""
    requests = watched.run.requests
    whole_s = watched.end_s - watched.start_s
    length_s = whole_s * min(1.0, _ARRIVALS / max(len(requests), 1))
    start_s = _busiest_s(requests) - length_s / 2
    start_s = min(max(start_s, watched.start_s), watched.end_s - length_s)
    return start_s, start_s + length_s


def in_window(watched: TimelineRun, window_s: Window, chosen: int | None = None) -> VisibleRequests:
    """Return requests present between two times, by arrival, evenly sampled, and ``chosen``."""
    requests = watched.run.requests
    start_s, end_s = window_s
    left_s = requests["last_token_s"].fillna(requests["scheduled_s"])
    there = requests[(requests["scheduled_s"] <= end_s) & (left_s >= start_s)]
    found = there["scheduled_s"].sort_values(kind="stable")
    rows = evenly(found.to_frame(), MOST_LINES).index.to_numpy(np.int64)
    if chosen is not None and chosen in found.index and chosen not in rows:
        rows = found.index[found.index.isin([*rows, chosen])].to_numpy(np.int64)
    sampled = f"; {len(rows)} of them drawn, evenly sampled" if len(rows) < len(found) else ""
    return VisibleRequests(rows, window_s, f"{len(found)} requests in this window{sampled}")


def slowest(watched: TimelineRun, count: int) -> VisibleRequests:
    """Return the finished requests of longest E2E latency, slowest first, with all their time."""
    requests = watched.run.requests
    e2e_s = requests.loc[requests["status"] == "finished", "e2e_s"]
    rows = e2e_s.nlargest(count).index.to_numpy(np.int64)
    these = requests.iloc[rows]
    if these.empty:
        return VisibleRequests(rows, (watched.start_s, watched.end_s), "No request finished")
    start_s, end_s = these["scheduled_s"].min(), these["last_token_s"].max()
    margin_s = 0.02 * (end_s - start_s)
    window_s = float(start_s - margin_s), float(end_s + margin_s)
    return VisibleRequests(
        rows, window_s, f"The slowest {len(rows)} of {len(e2e_s)} requests that finished"
    )


def timeline_data(watched: TimelineRun, choice: VisibleRequests) -> TimelineData:
    """Return the data of the figure."""
    start_s, end_s = choice.window_s
    requests = watched.run.requests.iloc[choice.rows]
    spans = [
        (line, *span)
        for line, row in enumerate(choice.rows.tolist())
        for span in watched.explainer.spans.of(row)
    ]
    frame = pd.DataFrame(spans, columns=["line", "part", "start_s", "end_s"])
    steps, state = watched.steps(start_s, end_s), watched.state(start_s, end_s)
    return TimelineData(start_s, end_s, requests, frame, steps, state)


def window_around(watched: TimelineRun, row: int) -> Window:
    """Return all of a request's time, and some before and after."""
    request = watched.run.requests.iloc[row]
    start_s = float(request["scheduled_s"])
    end_s = float(request["last_token_s"]) if request["status"] == "finished" else start_s
    margin_s = max(0.25 * (end_s - start_s), 0.5)
    return max(start_s - margin_s, watched.start_s), min(end_s + margin_s, watched.end_s)


def _busiest_s(requests: pd.DataFrame) -> float:
    done = requests[requests["status"] == "finished"]
    if done.empty:
        return 0.0
    comes_s, goes_s = np.sort(done["scheduled_s"]), np.sort(done["last_token_s"])
    there = np.arange(1, len(done) + 1) - np.searchsorted(goes_s, comes_s, side="right")
    return float(comes_s[there.argmax()])
