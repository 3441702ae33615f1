"""The Pareto front of a grid: points that no other point beats in both figures."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

INTERACTIVITY = "interactivity_tokens_per_s"
GOODPUT = "goodput_per_server_per_s"
THROUGHPUT = "output_tokens_per_server_per_s"


def on_front(points: pd.DataFrame, x: str, y: str) -> pd.Series:
    """Return which points are on the Pareto front, more being better in both figures.

    A point is on the front if no other is at least as good in both figures and better in one.
    Points with an undefined figure are not.
    """
    of_x, of_y = (points[name].to_numpy(dtype=float) for name in (x, y))
    better_x, better_y = of_x > of_x[:, None], of_y > of_y[:, None]
    as_good = (of_x >= of_x[:, None]) & (of_y >= of_y[:, None])
    beaten = (as_good & (better_x | better_y)).any(axis=1)
    return pd.Series(~beaten & np.isfinite(of_x) & np.isfinite(of_y), index=points.index)


def best_point(points: pd.DataFrame, y: str, attainment: float) -> int | None:
    """Return the row label of the highest ``y`` among the points that meet the SLO; None if none.

    Among equals the highest interactivity wins.
    """
    keeping = points[points["slo_attainment"].astype(float) >= attainment]
    keeping = keeping.dropna(subset=[y])
    if keeping.empty:
        return None
    label = keeping.sort_values([y, INTERACTIVITY], ascending=False).index[0]
    return int(label)


def at_interactivity(points: pd.DataFrame, levels: Sequence[float], y: str) -> pd.DataFrame:
    """Return, for each level in tokens/s per user, the row of the highest ``y`` that reaches it.

    Columns are ``at_least_tokens_per_s`` and those of ``points``; the latter are undefined for a
    level that no point reaches.
    """
    rows = []
    for level in levels:
        reaching = points[points[INTERACTIVITY].astype(float) >= level].dropna(subset=[y])
        top = reaching[y].to_numpy(dtype=float)
        best = reaching.iloc[int(top.argmax())].to_dict() if len(top) else {}
        rows.append({"at_least_tokens_per_s": level, **best})
    return pd.DataFrame(rows, columns=["at_least_tokens_per_s", *points.columns])


def round_levels(values: pd.Series, most: int = 6) -> list[float]:
    """Return levels that divide the range of ``values`` by equal ratios, cut to two digits."""
    defined = values.dropna().astype(float)
    defined = defined[defined > 0]
    if defined.empty:
        return []
    spaced = np.geomspace(defined.min(), defined.max(), most).clip(max=defined.max())
    units = 10.0 ** (np.floor(np.log10(spaced)) - 1)
    return sorted({float(f"{level:.6g}") for level in np.floor(spaced / units) * units})
