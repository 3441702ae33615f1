"""Requests along time: a bar each, alone or with batches, queue and KV memory on one axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import (
    OF_RUN,
    Figure,
    as_float32,
    canvas,
    escape_markup,
    evenly,
    looks,
    pattern_marker,
    stacked_canvas,
)
from servetwin.app.figures.stacked_bars import PART_LOOKS
from servetwin.app.words import asset_table, short

MOST_GANTT_REQUESTS = 120
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
    """Draw a bar per request, cut into its parts; below it the batches, the queue and the memory.

    A bar carries its request's id as ``customdata``. The line of ``chosen`` is marked.
    """
    panels = _panels(shown)
    title = "Requests, and below them the server" if len(panels) > 1 else "Requests along time"
    titles, heights_px = zip(*panels.values(), strict=True)
    figure = stacked_canvas("time, s", titles, _alt(shown), heights_px, title)
    _add_requests(figure, shown)
    _name_lines(figure, shown.requests["request_id"].tolist(), chosen)
    for row, panel in enumerate(panels, start=1):
        legend = figure.place_legend(row)
        if panel == "batches":
            add_batches(figure, batch_bars(shown.steps), row, legend=legend)
        elif panel != "requests":
            _add_state(figure, shown.state, panel, row, legend)
    figure.update_layout(barmode="overlay", bargap=0.15, dragmode="zoom")
    figure.update_xaxes(range=[shown.start_s, shown.end_s])
    figure.update_yaxes(fixedrange=True)
    return figure


def gantt(requests: pd.DataFrame, name: str = "") -> Figure:
    """Draw one row per finished request in the order of arrival, evenly sampled.

    A load test sees no queue: there one bar lasts from the arrival to the first token.
    """
    done = requests[requests["status"] == "finished"].sort_values("scheduled_s", kind="stable")
    shown = evenly(done, MOST_GANTT_REQUESTS)
    alt = f"Timelines of {len(shown)} of {len(done)} finished requests, in the order of arrival."
    if len(done):
        e2e_s = done["e2e_s"]
        alt += f" The longest takes {short(e2e_s.max())} s, the median {short(e2e_s.median())} s."
    title = f"Requests {f'of {name}' if name else 'along time'}, in the order of arrival"
    figure = canvas("time, s", "request, in order of arrival", alt, title)
    lines = np.arange(len(shown))
    ids = shown["request_id"].to_numpy(object)
    for part, (start_s, end_s) in _gantt_spans(shown).items():
        spans_s = start_s.to_numpy(float), end_s.to_numpy(float)
        _add_bars(figure, part, lines, spans_s, ids)
    figure.note_sample({"": (len(shown), len(done))}, "finished requests")
    figure.update_layout(barmode="overlay", bargap=0.15, height=420)
    figure.update_yaxes(autorange="reversed", showticklabels=False)
    return figure


def swim_lanes(task: pd.DataFrame, chosen: str | None = None) -> Figure:
    """Draw a line per session of a task, the root on top: its turns, and the pauses between them.

    ``task`` are its requests (``sim.records.tasks.task_of``). Thin lines lead from a turn to the
    first of each session that it begins, and from the last one of a session to the turn that waits
    for it. A diamond marks the request ``chosen``, a cross a turn that was not answered.
    """
    turns = task.sort_values("scheduled_s", kind="stable", ignore_index=True)
    lines, sessions = pd.factorize(turns["session"])
    lasted_s = turns["last_token_s"].max() - turns["scheduled_s"].min()
    alt = f"A task of {len(turns)} requests in {len(sessions)} sessions, {short(lasted_s)} s long."
    height_px = 60 + min(600, 26 * len(sessions))
    figure = stacked_canvas("time, s", [""], alt, [height_px], "One task: sessions, turns, pauses")
    ended_s = turns["last_token_s"].fillna(turns["scheduled_s"])
    parts = _gantt_spans(turns)
    parts["pause"] = ended_s, turns["scheduled_s"].groupby(lines).shift(-1)
    ids = turns["request_id"].to_numpy(object)
    for part, (start_s, end_s) in parts.items():
        rows = np.flatnonzero(end_s > start_s)
        spans_s = start_s.to_numpy(float)[rows], end_s.to_numpy(float)[rows]
        width = 0.2 if part == "pause" else 0.7
        _add_bars(figure, part, lines[rows], spans_s, ids[rows], width=width)
    _add_links(figure, turns, lines, ended_s)
    _add_unfinished(figure, turns, lines)
    for at in np.flatnonzero(ids == chosen):
        line = {"color": "white", "width": 1}
        mark = {"symbol": "diamond", "size": 11, "color": "#AA4455", "line": line}
        place = [turns["scheduled_s"][at]], [lines[at]]
        figure.plot("markers", "this request", *place, "%{x:.6g} s<extra></extra>", marker=mark)
    figure.update_layout(barmode="overlay")
    _name_lines(figure, sessions.tolist(), None)
    return figure


def _add_links(figure: Figure, turns: pd.DataFrame, lines: Any, ended_s: pd.Series) -> None:
    """Draw from which turns other sessions begin, and which turns wait for other sessions."""
    ends = dict(zip(turns["request_id"], zip(lines, ended_s, strict=True), strict=True))
    looks_of = {"begins a session": "solid", "waits for a session": "dot"}
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in looks_of}
    later = turns["session"].duplicated()
    rows = zip(turns["parents"], lines, turns["scheduled_s"], later, strict=True)
    for parents, line, begun_s, is_later in rows:
        others = [ends[name] for name in parents if name in ends and ends[name][0] != line]
        for other, at_s in others:
            name = list(looks_of)[is_later]
            points[name] += [(at_s, other), (begun_s, line), (np.nan, np.nan)]
    for name, dash in looks_of.items():
        if points[name]:
            x, y = zip(*points[name], strict=True)
            shape = {"color": "#808080", "dash": dash, "width": 1}
            figure.plot("lines", name, x, y, f"{name}<extra></extra>", line=shape)


def _gantt_spans(requests: pd.DataFrame) -> dict[str, tuple[pd.Series, pd.Series]]:
    stamps = ("scheduled_s", "first_token_s", "last_token_s")
    scheduled_s, first_s, last_s = (requests[stamp] for stamp in stamps)
    if requests["queue_s"].isna().all():
        return {"first_token": (scheduled_s, first_s), "streaming": (first_s, last_s)}
    admitted_s = scheduled_s + requests["queue_s"].fillna(0.0)
    waited, prefilled = (scheduled_s, admitted_s), (admitted_s, first_s)
    return {"queue": waited, "prefill": prefilled, "decode": (first_s, last_s)}


def _panels(shown: TimelineData) -> dict[str, tuple[str, int]]:
    """Return the title and the height of each panel."""
    panels = {"requests": ("request", 120 + min(440, 14 * len(shown.requests)))}
    if len(shown.steps):
        panels["batches"] = ("batches", 34 + 26 * shown.steps["replica"].nunique())
    if len(shown.state):
        panels["queue"] = ("requests, count", 120)
        if shown.state["kv_usage"].notna().any():
            panels["memory"] = ("KV memory, %", 110)
    return panels


def _add_requests(figure: Figure, shown: TimelineData) -> None:
    ids = shown.requests["request_id"].to_numpy(object)
    for part in PART_LOOKS:
        spans = shown.spans[shown.spans["part"] == part]
        if len(spans):
            lines = spans["line"].to_numpy(int)
            spans_s = spans["start_s"].to_numpy(float), spans["end_s"].to_numpy(float)
            _add_bars(figure, part, lines, spans_s, ids[lines], row=1, col=1)
    _add_unfinished(figure, shown.requests, np.arange(len(ids)))


def _add_bars(
    figure: Figure, part: str, lines: Any, spans_s: tuple[Any, Any], ids: Any, **more: Any
) -> None:
    """Add the spans of one part of ``PART_LOOKS``, each on the line of its request."""
    name, colour, pattern = PART_LOOKS[part]
    hover, texts = "%{text}: %{x:.4g} s, from %{base:.6g} s" + OF_RUN, list(map(escape_markup, ids))
    options = {"customdata": ids, "marker": pattern_marker(colour, pattern), **more}
    figure.add_spans(name, lines, spans_s, texts, hover, **options)


def _add_unfinished(figure: Figure, requests: pd.DataFrame, lines: Any) -> None:
    rows = np.flatnonzero(requests["status"] != "finished")
    if not len(rows):
        return
    failed = requests.iloc[rows]
    reasons = failed["error"].fillna("").replace("", "no reason is known")
    labels = zip(failed["request_id"], failed["status"], reasons, strict=True)
    figure.add_scatter(
        x=failed["scheduled_s"].to_numpy(float), y=lines[rows], customdata=failed["request_id"],
        text=[escape_markup(f"{name}: {status} ({reason})") for name, status, reason in labels],
        name="not finished", mode="markers",
        marker={"symbol": "x", "size": 7, "color": "#AA4455"},
        hovertemplate="%{text}<extra></extra>", row=1, col=1,
    )  # fmt: skip


def _name_lines(figure: Figure, ids: Sequence[str], chosen: str | None) -> None:
    """Name all lines where there is room, and the chosen one in any case, on grey."""
    named = [line for line, name in enumerate(ids) if len(ids) <= MOST_NAMED or name == chosen]
    figure.update_yaxes(
        range=[len(ids) - 0.4, -0.6], tickvals=named, row=1, col=1, zeroline=False,
        ticktext=[_label(ids[line], ids[line] == chosen) for line in named],
        title="" if named else "request, in order of arrival", showgrid=False,
    )  # fmt: skip
    look = {"fillcolor": _CHOSEN, "line_width": 0, "layer": "below", "row": 1, "col": 1}
    for line in (line for line in named if ids[line] == chosen):
        figure.add_hrect(y0=line - 0.5, y1=line + 0.5, **look)


def _label(name: str, is_chosen: bool) -> str:
    short = name if len(name) <= _NAME_LENGTH else f"...{name[3 - _NAME_LENGTH :]}"
    return f"<b>▶ {escape_markup(short)}</b>" if is_chosen else escape_markup(short)


def _add_state(figure: Figure, state: pd.DataFrame, panel: str, row: int, legend: str) -> None:
    queue, memory = ("running", "waiting"), ("kv_usage",)
    factor, unit = (1.0, "") if panel == "queue" else (100.0, "% ")
    shapes = looks((*queue, *memory))
    for name in queue if panel == "queue" else memory:
        label = "in use" if name in memory else name
        hover = f"%{{y:.4g}} {unit}{label} at %{{x:.6g}} s<extra></extra>"
        x, y = state["at_s"].to_numpy(float), as_float32(state[name] * factor)
        options = {"line": shapes[name].steps, "legend": legend, "row": row, "col": 1}
        figure.add_scatter(x=x, y=y, name=label, mode="lines", hovertemplate=hover, **options)


def _alt(shown: TimelineData) -> str:
    unfinished = int((shown.requests["status"] != "finished").sum())
    which = f"{len(shown.requests)} requests from {shown.start_s:.4g} to {shown.end_s:.4g} s"
    also = f", {unfinished} of them not finished" if unfinished else ""
    below = "with batches, queue and KV memory below" if len(shown.steps) else "seen by a client"
    alt = [f"Timeline of {which}{also}, {below}."]
    if len(shown.spans):
        lines = shown.spans.groupby("line")
        longest_s = (lines["end_s"].max() - lines["start_s"].min()).max()
        alt.append(f"The longest takes {short(longest_s)} s.")
    for name in ("running", "waiting"):
        if len(shown.state) and shown.state[name].notna().any():
            alt.append(f"Requests {name}: at most {short(shown.state[name].max())}.")
    return " ".join(alt)


MOST_BATCHES = 600
# Colour and pattern by the share of prompts in the rows that a batch computes.
MIXES: dict[str, tuple[str, str]] = asset_table("looks.yaml")["batches"]


def batch_bars(steps: pd.DataFrame, most: int = MOST_BATCHES) -> pd.DataFrame:
    """Return ``Run.steps`` as bars, at most ``most`` per replica: close ones are joined.

    Columns: ``replica``, ``start_s``, ``end_s``, ``busy_s``, ``steps``, ``rows`` and ``decodes``
    (rows computed in all these steps, and those of decodes), ``mix`` (of ``MIXES``).
    """
    rows = steps[["replica", "start_s", "end_s", "steps"]].assign(
        busy_s=steps["end_s"] - steps["start_s"],
        rows=steps["rows"] * steps["steps"],
        decodes=steps["decode_sequences"] * steps["steps"],
    )
    bars = rows if len(rows) <= most else _joined(rows, most)
    return bars.assign(mix=_mixes(bars)).reset_index(drop=True)


def add_batches(figure: Figure, bars: pd.DataFrame, row: int, **options: object) -> None:
    """Draw bars of ``batch_bars`` in a panel of ``figure``, a line per replica."""
    for mix, (colour, pattern) in MIXES.items():
        of = bars[bars["mix"] == mix]
        y = [f"replica {replica}" for replica in of["replica"]]
        spans_s = of["start_s"].to_numpy(float), of["end_s"].to_numpy(float)
        texts = [
            _batch_text(*values) for values in of[["steps", "rows", "decodes", "busy_s"]].values
        ]
        hover = "%{text}, from %{base:.6g} s<extra>" + mix + "</extra>"
        marker, place = pattern_marker(colour, pattern), {"row": row, "col": 1, **options}
        figure.add_spans(mix, y, spans_s, texts, hover, marker=marker, **place)
    figure.update_yaxes(type="category", autorange="reversed", row=row, col=1)


def _joined(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Join the bars of a replica that begin in the same ``most``-th of the time."""
    start_s = rows["start_s"].to_numpy(float)
    span_s = max(float(rows["end_s"].max()) - start_s.min(), 1e-9)
    bucket = np.floor(most * (start_s - start_s.min()) / span_s).astype(int)
    grouped = rows.groupby([rows["replica"], bucket], sort=True)
    sums = dict.fromkeys(("busy_s", "steps", "rows", "decodes"), "sum")
    joined = grouped.agg({"replica": "first", "start_s": "min", "end_s": "max", **sums})
    return joined.reset_index(drop=True)


def _mixes(bars: pd.DataFrame) -> pd.Series:
    prompts = 1 - bars["decodes"] / bars["rows"].where(bars["rows"] > 0)
    edges = [-np.inf, 0.0, 0.5, 1 - 1e-12, np.inf]
    return pd.cut(prompts.fillna(0.0), edges, labels=list(MIXES)).astype(str)


def _batch_text(steps: float, rows: float, decodes: float, busy_s: float) -> str:
    per_step = f"{rows / steps:.4g} rows, {decodes / steps:.4g} of them decodes"
    several = f"{steps:.0f} steps of about {per_step}" if steps > 1 else f"a step of {per_step}"
    return f"{several}: {1000 * busy_s:.4g} ms"
