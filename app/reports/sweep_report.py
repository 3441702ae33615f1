"""A sweep in words: the frontier, its best point, and what could not be."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import shorten, wrap
from typing import Any

import pandas as pd

from servetwin.app.reports.tables import WIDTH
from servetwin.app.reports.text_frontier import front_lines, scatter_lines
from servetwin.sim.experiments.sweep import GOODPUT, PROBLEM, best_point

_MOST_PROBLEMS = 5


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
        *_problem_lines(frame),
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


def _problem_lines(frame: pd.DataFrame) -> list[str]:
    counted = Counter(problem for problem in frame[PROBLEM] if problem).most_common()
    lines = [f"{count} x could not be: {problem}" for problem, count in counted[:_MOST_PROBLEMS]]
    if len(counted) > _MOST_PROBLEMS:
        lines.append(f"and {len(counted) - _MOST_PROBLEMS} other reasons")
    return [shorten(line, WIDTH, placeholder=" ...") for line in lines]
