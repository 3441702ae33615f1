"""The grid of the Frontier page: rates times the settings of one server, and its conclusion."""

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from math import ceil
from typing import Any

import pandas as pd

from servetwin.app.dashboard.formatting import page_text, three_digits
from servetwin.app.dashboard.jobs.simulated_items import (
    AXES,
    parse_numbers,
    require_few,
    with_values,
)
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.words import METRICS
from servetwin.sim.experiments import sweep as frontier
from servetwin.sim.records.metrics import duration_unit
from servetwin.workloads.rows import counted

Y_TITLES = {
    frontier.GOODPUT: "goodput per replica, requests/s",
    frontier.THROUGHPUT: "output throughput per replica, tokens/s",
}
Y_DEFINITIONS = {
    frontier.GOODPUT: METRICS["goodput_per_s"].definition,
    frontier.THROUGHPUT: METRICS["output_throughput_tokens_per_s"].definition,
}
MOST_TOGETHER = 6
"""Series in one panel: the first six looks differ for every eye."""
_WORDS = {"max_seqs": "sequence", "token_budget": "budget token", "replicas": "replica"}


def frontier_points(texts: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a point per combination of the values in the fields.

    An empty field varies nothing: it is as in the scenario, its rate too. A point has its values
    by axis, ``series`` (a name without the rate) and ``label``. Raises ``ScenarioError`` naming the
    field, or where there are too many.
    """
    listed = {axis: parse_numbers(texts.get(axis, ""), axis) for axis in AXES}
    varied = {axis: values for axis, values in listed.items() if values}
    combinations = [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
    require_few(len(combinations))
    return [_named(values) for values in sorted(combinations, key=_by_series)]


def scenarios(
    base: ScenarioFile, texts: Mapping[str, str]
) -> tuple[list[dict[str, Any]], list[ScenarioFile]]:
    """Return the ``frontier_points`` and the scenario of each."""
    points = frontier_points(texts)
    return points, [with_values(base, values_of(point)) for point in points]


def series_groups(points: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the series of each panel by its title, six at most: more looks are not told apart.

    A panel has one value of a setting where that leaves few panels, else the next series in order.
    """
    series = {point["series"]: point for point in points}
    fewest = ceil(len(series) / MOST_TOGETHER)
    if fewest <= 1:
        return {"": list(series)}
    by_setting = [_by_setting(series, axis) for axis in _WORDS if axis in points[0]]
    good = [
        groups
        for groups in by_setting
        if len(groups) <= 2 * fewest and max(map(len, groups.values())) <= MOST_TOGETHER
    ]
    return min(good, key=len) if good else _in_order(list(series), fewest)


def values_of(point: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of a point, by axis."""
    return {axis: point[axis] for axis in AXES if axis in point and pd.notna(point[axis])}


def conclusion(points: pd.DataFrame, y: str, share: float) -> str:
    """Return one sentence on the best point, or on the nearest where none keeps the SLO."""
    best = frontier.best_point(points, y, share)
    if best is not None:
        row = points.loc[[best]].iloc[0]
        return page_text(
            "frontier.best", label=row["label"], y=three_digits(row[y]), unit=_unit(y),
            speed=three_digits(row[frontier.INTERACTIVITY]), share=100 * row["slo_attainment"],
        )  # fmt: skip
    tried = points.dropna(subset=["slo_attainment"])
    if len(tried):
        row = tried.iloc[int(tried["slo_attainment"].argmax())]
        label, attained = row["label"], 100 * row["slo_attainment"]
        return page_text("frontier.nearest", wanted=100 * share, label=label, share=attained)
    return "No point could be simulated."


def level_table(points: pd.DataFrame, levels: Sequence[float], y: str) -> pd.DataFrame:
    """Return the highest ``y`` at each level of interactivity, and the point that gives it."""
    best = frontier.at_interactivity(points, levels, y)
    ttft_s = best["ttft_s_p99"].astype(float)
    unit, factor = duration_unit(ttft_s)
    return pd.DataFrame(
        {
            "tokens/s for a user, at least": best["at_least_tokens_per_s"],
            Y_TITLES[y]: best[y],
            "point": best["label"],
            "within the SLO, %": 100 * best["slo_attainment"].astype(float),
            f"TTFT p99, {unit}": factor * ttft_s,
        }
    )


def _named(values: Mapping[str, float]) -> dict[str, Any]:
    parts = [counted(int(values[axis]), _WORDS[axis]) for axis in _WORDS if axis in values]
    series = ", ".join(parts) or "this scenario"
    at = f" at {values['rate']:g} requests/s" if "rate" in values else ""
    return {**values, "series": series, "label": f"{series}{at}"}


def _by_setting(series: Mapping[str, Mapping[str, Any]], axis: str) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, point in series.items():
        groups.setdefault(counted(int(point[axis]), _WORDS[axis]), []).append(name)
    return groups


def _in_order(names: Sequence[str], panels: int) -> dict[str, list[str]]:
    """Cut the series into panels as equal as can be."""
    edges = [round(place * len(names) / panels) for place in range(panels + 1)]
    parts = [list(names[start:end]) for start, end in pairwise(edges)]
    return {f"{part[0]} to {part[-1]}": part for part in parts}


def _by_series(values: Mapping[str, float]) -> list[float]:
    """Return a sort key: one series after the other, each from the lowest rate on."""
    return [values[axis] for axis in (*_WORDS, "rate") if axis in values]


def _unit(y: str) -> str:
    return Y_TITLES[y].rpartition(", ")[2]
