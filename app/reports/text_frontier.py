"""A frontier in the terminal: a scatter of characters, and a table of its front."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from servetwin.sim.experiments.sweep import INTERACTIVITY, on_front
from servetwin.sim.records.metrics import duration

WIDTH, HEIGHT = 72, 18
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
    cells = np.full((HEIGHT, WIDTH), " ")
    for (x_of, y_of), mark in _marks(defined, y, best):
        row = HEIGHT - 1 - _cell(y_of, y_most, HEIGHT)
        cells[row, _cell(x_of, x_most, WIDTH)] = mark
    labels = [f"{y_most:.4g}", *[""] * (HEIGHT - 2), "0"]
    return [
        f"{unit}",
        *(f"{label:>10} |{''.join(row)}" for label, row in zip(labels, cells, strict=True)),
        f"{'':>10} +{'-' * WIDTH}",
        f"{'':>12}0{f'{x_most:.4g}':>{WIDTH - 1}}",
        f"{'':>12}{'tokens/s that a user sees (1 / median TPOT)':^{WIDTH}}",
    ]


def front_lines(points: pd.DataFrame, keys: Sequence[str], y: str, best: int | None) -> list[str]:
    """Return the front as a table, most interactive first; the best point is tagged."""
    front = points[on_front(points, INTERACTIVITY, y)].sort_values(INTERACTIVITY, ascending=False)
    heads = [*keys, "rate/s", "tok/s user", "goodput", "tok/s", "TTFT p99", "TPOT p99", "SLO"]
    table = [heads, *(_cells(row, keys) for _, row in front.iterrows())]
    tags = ["", *("  * best" if label == best else "" for label in front.index)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(map(str.rjust, cells, widths)) for cells in table)
    return [line + tag for line, tag in zip(lines, tags, strict=True)]


def _marks(points: pd.DataFrame, y: str, best: int | None) -> list[tuple[tuple[float, float], str]]:
    """Return place and character of every point, the most important last, to stay visible."""
    front = on_front(points, INTERACTIVITY, y)
    parts = ((points[~front], OTHER), (points[front], FRONT), (points[points.index == best], BEST))
    return [
        (place, mark)
        for part, mark in parts
        for place in zip(part[INTERACTIVITY], part[y], strict=True)
    ]


def _cell(value: float, most: float, cells: int) -> int:
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
