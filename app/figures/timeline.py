"""Requests, batches, queue and KV memory on one time axis."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from app.figures.batches import add_batches, batch_bars
from app.figures.canvas import Figure, line_of, stacked_canvas
from app.figures.explained import PART_LOOKS
from app.figures.palette import looks
from app.figures.sampling import as_float32
from app.figures.text import plain

MOST_NAMED = 40
_NAME_LENGTH = 22
_CHOSEN = "rgba(128,128,128,0.28)"


@dataclass(frozen=True, slots=True)
class TimelineData:
    """What a timeline shows between ``start_s`` and ``end_s``.

    ``requests`` has a line per request, from the top: ``request_id``, ``status``, ``scheduled_s``,
    ``error``. ``spans`` are theirs: ``line``, ``part`` (of ``PART_LOOKS``), ``start_s``, ``end_s``.
    ``steps`` are rows of ``Run.steps``, ``state`` is of ``state_of_steps`` or of a load test's
    server; both may be empty.
    """

    start_s: float
    end_s: float
    requests: pd.DataFrame
    spans: pd.DataFrame
    steps: pd.DataFrame
    state: pd.DataFrame


def timeline(shown: TimelineData, chosen: str | None = None) -> Figure:
    """A bar per request, cut into its parts; below it the batches, the queue and the memory.

    A bar carries its request's id as ``customdata``. The line of ``chosen`` is marked.
    """
    panels = _panels(shown)
    figure = stacked_canvas("time, s", list(panels.values()), _alt(shown), _heights_px(shown))
    _add_requests(figure, shown)
    _name_lines(figure, shown.requests["request_id"].tolist(), chosen)
    for row, panel in enumerate(panels, start=1):
        legend = f"legend{row}" if row > 1 else "legend"
        if panel == "batches":
            add_batches(figure, batch_bars(shown.steps), row, legend=legend)
        elif panel != "requests":
            _add_state(figure, shown.state, panel, row, legend)
        _place_legend(figure, row, legend)
    figure.update_layout(barmode="overlay", bargap=0.15, dragmode="zoom")
    figure.update_xaxes(range=[shown.start_s, shown.end_s])
    figure.update_yaxes(fixedrange=True)
    return figure


def _panels(shown: TimelineData) -> dict[str, str]:
    panels = {"requests": "request"}
    if len(shown.steps):
        panels["batches"] = "batches"
    if len(shown.state):
        panels["queue"] = "requests, count"
        if shown.state["kv_usage"].notna().any():
            panels["memory"] = "KV memory, %"
    return panels


def _heights_px(shown: TimelineData) -> list[int]:
    heights = {
        "requests": 120 + min(440, 14 * len(shown.requests)),
        "batches": 34 + 26 * (shown.steps["replica"].nunique() if len(shown.steps) else 0),
        "queue": 120,
        "memory": 110,
    }
    return [heights[panel] for panel in _panels(shown)]


def _add_requests(figure: Figure, shown: TimelineData) -> None:
    names = shown.requests["request_id"].to_numpy(object)
    for part, (name, colour, pattern) in PART_LOOKS.items():
        of = shown.spans[shown.spans["part"] == part]
        if of.empty:
            continue
        ids = names[of["line"].to_numpy(int)]
        figure.add_bar(
            orientation="h",
            y=of["line"].to_numpy(int),
            base=of["start_s"].to_numpy(float),
            x=(of["end_s"] - of["start_s"]).to_numpy(float),
            customdata=ids,
            text=[plain(one) for one in ids],
            textposition="none",
            name=name,
            marker={
                "color": colour,
                "pattern": {"shape": pattern, "size": 5, "fillmode": "overlay"},
                "line": {"width": 0},
            },
            hovertemplate="%{text}: %{x:.4g} s, from %{base:.6g} s<extra>%{fullData.name}</extra>",
            row=1,
            col=1,
        )
    _add_unfinished(figure, shown.requests)


def _add_unfinished(figure: Figure, requests: pd.DataFrame) -> None:
    lines = np.flatnonzero(requests["status"] != "finished")
    if not len(lines):
        return
    failed = requests.iloc[lines]
    reasons = failed["error"].fillna("").replace("", "no reason is known")
    said = zip(failed["request_id"], failed["status"], reasons, strict=True)
    figure.add_scatter(
        x=failed["scheduled_s"].to_numpy(float),
        y=lines,
        customdata=failed["request_id"],
        text=[plain(f"{name}: {status} ({reason})") for name, status, reason in said],
        name="not finished",
        mode="markers",
        marker={"symbol": "x", "size": 7, "color": "#AA4455"},
        hovertemplate="%{text}<extra></extra>",
        row=1,
        col=1,
    )


def _name_lines(figure: Figure, ids: Sequence[str], chosen: str | None) -> None:
    """Names of all where there is room; of the chosen request in any case, and its line grey."""
    named = [line for line, name in enumerate(ids) if len(ids) <= MOST_NAMED or name == chosen]
    figure.update_yaxes(
        range=[len(ids) - 0.4, -0.6], tickvals=named, row=1, col=1, zeroline=False,
        ticktext=[_label(ids[line], ids[line] == chosen) for line in named],
        title="" if named else "request, in order", showgrid=False,
    )  # fmt: skip
    for line in (line for line in named if ids[line] == chosen):
        figure.add_hrect(
            y0=line - 0.5, y1=line + 0.5, fillcolor=_CHOSEN, line_width=0, layer="below",
            row=1, col=1,
        )  # fmt: skip


def _label(name: str, is_chosen: bool) -> str:
    short = name if len(name) <= _NAME_LENGTH else f"...{name[3 - _NAME_LENGTH :]}"
    return f"<b>▶ {plain(short)}</b>" if is_chosen else plain(short)


def _add_state(figure: Figure, state: pd.DataFrame, panel: str, row: int, legend: str) -> None:
    factors = {"running": 1.0, "waiting": 1.0} if panel == "queue" else {"kv_usage": 100.0}
    words = {"kv_usage": "in use"}
    shapes = looks(["running", "waiting", "kv_usage"])
    for name, factor in factors.items():
        said = words.get(name, name)
        figure.add_scatter(
            x=state["at_s"].to_numpy(float),
            y=as_float32(state[name] * factor),
            name=said,
            mode="lines",
            line={**line_of(shapes[name]), "shape": "hv"},
            hovertemplate=f"%{{y:.4g}} {'% ' if factor > 1 else ''}{said} at %{{x:.6g}} s"
            "<extra></extra>",
            legend=legend,
            row=row,
            col=1,
        )


def _place_legend(figure: Figure, row: int, legend: str) -> None:
    """Above its own panel."""
    top = figure.layout["yaxis" if row == 1 else f"yaxis{row}"].domain[1]
    place = {"orientation": "h", "x": 0, "y": top, "yanchor": "bottom", "font": {"size": 11}}
    figure.update_layout({legend: place})


def _alt(shown: TimelineData) -> str:
    unfinished = int((shown.requests["status"] != "finished").sum())
    said = f"{len(shown.requests)} requests from {shown.start_s:.4g} to {shown.end_s:.4g} s"
    also = f", {unfinished} of them not finished" if unfinished else ""
    below = "with batches, queue and KV memory below" if len(shown.steps) else "seen by a client"
    return f"Timeline of {said}{also}, {below}."
