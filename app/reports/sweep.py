"""A sweep in words: the frontier, its best point, and what could not be; and its points.

The points of a sweep from Python are a frame that draws itself.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from servetwin.app.reports.table import table_lines, wrapped
from servetwin.app.reports.tables import error_lines
from servetwin.app.words import asset_table, short
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.experiments.sweep import (
    GOODPUT,
    INTERACTIVITY,
    PROBLEM,
    GridConditions,
    GridPoint,
    best_point,
    on_front,
    simulate_point,
)
from servetwin.sim.records.metrics import SLO, duration
from servetwin.workloads.trace import Trace


def report_text(frame: pd.DataFrame, keys: Sequence[str], attainment: float) -> str:
    """Return what ``servetwin sweep`` prints."""
    points = frame[frame[PROBLEM] == ""]
    labels = list(map(named, points[[*keys, "rate_per_s"]].to_dict("records")))
    best = best_point(points, GOODPUT, attainment)
    lines = [
        f"{len(points)} points; the front, goodput and tok/s per replica:",
        *front_lines(points, keys, GOODPUT, best),
        "",
        *wrapped([conclusion(points.assign(label=labels), attainment)], "  "),
        *error_lines([f"could not be: {problem}" for problem in frame[PROBLEM] if problem], 5),
    ]
    return "\n".join(lines)


def as_json(frame: pd.DataFrame, keys: Sequence[str], attainment: float) -> str:
    """Return all points as objects, and the place of the best; undefined figures are null."""
    best = best_point(frame[frame[PROBLEM] == ""], GOODPUT, attainment)
    points = json.loads(frame.drop(columns="sweep").to_json(orient="records"))
    return json.dumps({"varied": list(keys), "best": best, "points": points})


def named(point: Mapping[Any, Any]) -> str:
    """Return a point, its values by key and its rate, in words: ``max_seqs=64 at 8 requests/s``."""
    rate = point["rate_per_s"]
    values = " ".join(f"{key}={value}" for key, value in point.items() if key != "rate_per_s")
    at = "at the trace's rate" if pd.isna(rate) else f"at {rate:g} requests/s"
    return f"{values} {at}".strip()


class SweepPoints(pd.DataFrame):
    """The rows of a sweep; what is computed of them is a plain frame."""

    def plot(self, name: str = "p99_ttft", path: str | Path | None = None) -> Any:  # type: ignore[override]
        """Draw a figure against the rate, a line per scenario, a column of a paper wide.

        ``name`` is p50, p90 or p99 with _ttft, _tpot or _e2e, or goodput, throughput or attainment.
        Writes it to ``path`` (.pdf, .svg, .png, .html), replacing a picture there. Returns the
        plotly figure. Raises ``ServetwinError`` for an unknown name or fewer than two rates.
        """
        from servetwin.app.figures.paper import curve
        from servetwin.app.reports.html.picture_file import PictureFile

        figure = curve(self, name, ["scenario"], self.attrs["slo"])
        if path is not None:
            PictureFile.checked(Path(path), dark=False, overwrite=True).draw(figure)
        return figure


def sweep(
    trace: Trace,
    scenarios: Mapping[str, Scenario],
    rates_per_s: Iterable[float | None] = (None,),
    *,
    slo: SLO,
    seed: int = 0,
) -> SweepPoints:
    """Simulate every scenario at every rate; return a row of figures for each.

    A rate is in requests per second; None is the trace's own. ``problem`` says why a point could
    not be simulated. ``points.plot("p99_ttft", "curve.pdf")`` draws a figure of a paper.
    """
    conditions = GridConditions(trace, slo, seed)
    points = SweepPoints(
        {"scenario": name, "rate_per_s": rate}
        | simulate_point(conditions, GridPoint(scenario, rate))
        for rate in rates_per_s
        for name, scenario in scenarios.items()
    )
    points.attrs["slo"] = slo
    return points


def conclusion(points: pd.DataFrame, attainment: float) -> str:
    """Return one sentence on the best of labelled points; on the nearest if none keeps the SLO."""
    best = best_point(points, GOODPUT, attainment)
    tried = points.dropna(subset=["slo_attainment"])
    if tried.empty:
        return "No point could be simulated."
    row = tried.loc[[tried["slo_attainment"].idxmax() if best is None else best]].iloc[0]
    return str(asset_table("words.yaml")["frontier"]["nearest" if best is None else "best"]).format(
        label=row["label"], goodput=short(row[GOODPUT]), speed=short(row[INTERACTIVITY]),
        share=100 * row["slo_attainment"], wanted=100 * attainment,
    )  # fmt: skip


def front_lines(points: pd.DataFrame, keys: Sequence[str], y: str, best: int | None) -> list[str]:
    """Return the front as a table, most interactive first; the best point is tagged."""
    front = points[on_front(points, INTERACTIVITY, y)].sort_values(INTERACTIVITY, ascending=False)
    heads = [*keys, "rate/s", "tok/s user", "goodput", "tok/s", "TTFT p99", "TPOT p99", "SLO"]
    tags = ("* best" if label == best else "" for label in front.index)
    cells = (_cells(row, keys) for _, row in front.iterrows())
    rows = ([*row, tag] for row, tag in zip(cells, tags, strict=True))
    return table_lines([*heads, ""], rows, ">" * len(heads) + "<")


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
