"""A sweep in words: the frontier, its best point, and what could not be."""

import json
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd

from servetwin.app.reports.table import table_lines
from servetwin.app.reports.tables import WIDTH, error_lines
from servetwin.sim.experiments.sweep import GOODPUT, INTERACTIVITY, PROBLEM, best_point, on_front
from servetwin.sim.records.metrics import duration


def report_text(frame: pd.DataFrame, keys: Sequence[str], attainment: float) -> str:
    """Return what ``servetwin sweep`` prints."""
    points = frame[frame[PROBLEM] == ""]
    best = best_point(points, GOODPUT, attainment)
    lines = [
        *scatter_lines(points, GOODPUT, best, "goodput per replica, requests/s"),
        "",
        f"{len(points)} points; the front, goodput and tok/s per replica:",
        *front_lines(points, keys, GOODPUT, best),
        "",
        *wrap(_conclusion(points, keys, best, attainment), WIDTH, subsequent_indent="  "),
        *error_lines([f"could not be: {problem}" for problem in frame[PROBLEM] if problem], 5),
    ]
    return "\n".join(lines)


def as_json(frame: pd.DataFrame, keys: Sequence[str], attainment: float) -> str:
    """Return all points as objects, and the place of the best; undefined figures are null."""
    best = best_point(frame[frame[PROBLEM] == ""], GOODPUT, attainment)
    points = json.loads(frame.drop(columns="sweep").to_json(orient="records"))
    return json.dumps({"varied": list(keys), "best": best, "points": points})


def named(point: Mapping[str, Any]) -> str:
    """Return a point, its values by key and its rate, in words: ``max_seqs=64 at 8 requests/s``."""
    rate = point["rate_per_s"]
    values = " ".join(f"{key}={value}" for key, value in point.items() if key != "rate_per_s")
    at = "at the trace's rate" if pd.isna(rate) else f"at {rate:g} requests/s"
    return f"{values} {at}".strip()


def _conclusion(
    points: pd.DataFrame, keys: Sequence[str], best: int | None, attainment: float
) -> str:
    if best is None:
        return f"no point keeps the SLO for {100 * attainment:g} % of the requests"
    row = points.loc[[best]].iloc[0]
    point = {name: row[name] for name in (*keys, "rate_per_s")}
    return (
        f"best: {named(point)}: {row[GOODPUT]:.4g} requests/s per replica within the SLO, "
        f"{100 * row['slo_attainment']:.1f} % of them"
    )


PLOT_WIDTH, PLOT_HEIGHT = 72, 18
OTHER, FRONT, BEST = ".", "o", "*"


def scatter_lines(points: pd.DataFrame, y: str, best: int | None, unit: str) -> list[str]:
    """Draw ``y`` upwards against interactivity to the right, from 0; a front is ``o``, the best
    ``*``.

    Empty without a point that has both.
    """
    defined = points.dropna(subset=[INTERACTIVITY, y])
    if defined.empty:
        return []
    x_most, y_most = float(defined[INTERACTIVITY].max()), float(defined[y].max())
    cells = np.full((PLOT_HEIGHT, PLOT_WIDTH), " ")
    for (x_of, y_of), mark in _marks(defined, y, best):
        row = PLOT_HEIGHT - 1 - _place(y_of, y_most, PLOT_HEIGHT)
        cells[row, _place(x_of, x_most, PLOT_WIDTH)] = mark
    labels = [f"{y_most:.4g}", *[""] * (PLOT_HEIGHT - 2), "0"]
    return [
        f"{unit}",
        *(f"{label:>10} |{''.join(row)}" for label, row in zip(labels, cells, strict=True)),
        f"{'':>10} +{'-' * PLOT_WIDTH}",
        f"{'':>12}0{f'{x_most:.4g}':>{PLOT_WIDTH - 1}}",
        f"{'':>12}{'tokens/s that a user sees (1 / median TPOT)':^{PLOT_WIDTH}}",
    ]


def front_lines(points: pd.DataFrame, keys: Sequence[str], y: str, best: int | None) -> list[str]:
    """Return the front as a table, most interactive first; the best point is tagged."""
    front = points[on_front(points, INTERACTIVITY, y)].sort_values(INTERACTIVITY, ascending=False)
    heads = [*keys, "rate/s", "tok/s user", "goodput", "tok/s", "TTFT p99", "TPOT p99", "SLO"]
    tags = ("* best" if label == best else "" for label in front.index)
    cells = (_cells(row, keys) for _, row in front.iterrows())
    rows = ([*row, tag] for row, tag in zip(cells, tags, strict=True))
    return table_lines([*heads, ""], rows, ">" * len(heads) + "<")


def _marks(points: pd.DataFrame, y: str, best: int | None) -> list[tuple[tuple[float, float], str]]:
    """Return place and character of every point, the most important last, to stay visible."""
    front = on_front(points, INTERACTIVITY, y)
    parts = ((points[~front], OTHER), (points[front], FRONT), (points[points.index == best], BEST))
    return [
        (place, mark)
        for part, mark in parts
        for place in zip(part[INTERACTIVITY], part[y], strict=True)
    ]


def _place(value: float, most: float, cells: int) -> int:
    return min(int(value / most * cells), cells - 1) if most > 0 else 0


def _cells(row: "pd.Series", keys: Sequence[str]) -> list[str]:
    return [
        *(str(row[key])[:20] for key in keys),
        "own" if pd.isna(row["rate_per_s"]) else f"{row['rate_per_s']:g}",
        f"{row[INTERACTIVITY]:.4g}",
        f"{row['goodput_per_server_per_s']:.4g}",
        f"{row['output_tokens_per_server_per_s']:.4g}",
        duration(row["ttft_s_p99"]),
        duration(row["tpot_s_p99"]),
        f"{100 * row['slo_attainment']:.1f} %",
    ]
