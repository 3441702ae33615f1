"""Which points of a grid are worth a look: nothing else beats them in both figures."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

INTERACTIVITY = "interactivity_tokens_per_s"
GOODPUT = "goodput_per_server_per_s"
THROUGHPUT = "output_tokens_per_server_per_s"


def on_front(points: pd.DataFrame, x: str, y: str) -> pd.Series:
    """Which points are on the Pareto front, more being better in both figures.

    A point is on it where no other is at least as good in both and better in one. Undefined ones
    are not.
    """
    of_x, of_y = (points[name].to_numpy(dtype=float) for name in (x, y))
    better_x, better_y = of_x > of_x[:, None], of_y > of_y[:, None]
    as_good = (of_x >= of_x[:, None]) & (of_y >= of_y[:, None])
    beaten = (as_good & (better_x | better_y)).any(axis=1)
    return pd.Series(~beaten & np.isfinite(of_x) & np.isfinite(of_y), index=points.index)


def best_point(points: pd.DataFrame, y: str, attainment: float) -> int | None:
    """The row label of the highest ``y`` among the points that keep the SLO; None where none does.

    Of equal ones, the one of the highest interactivity.
    """
    keeping = points[points["slo_attainment"].astype(float) >= attainment]
    keeping = keeping.dropna(subset=[y])
    if keeping.empty:
        return None
    label = keeping.sort_values([y, INTERACTIVITY], ascending=False).index[0]
    return int(label)


def at_interactivity(points: pd.DataFrame, levels: Sequence[float], y: str) -> pd.DataFrame:
    """For each level in tokens/s per user: the row of the highest ``y`` that gives that or more.

    Columns ``at_least_tokens_per_s`` and those of ``points``; a level that none reaches has only
    the first.
    """
    rows = []
    for level in levels:
        reaching = points[points[INTERACTIVITY].astype(float) >= level].dropna(subset=[y])
        top = reaching[y].to_numpy(dtype=float)
        best = reaching.iloc[int(top.argmax())].to_dict() if len(top) else {}
        rows.append({"at_least_tokens_per_s": level, **best})
    return pd.DataFrame(rows, columns=["at_least_tokens_per_s", *points.columns])


def round_levels(values: pd.Series, most: int = 6) -> list[float]:
    """Levels that divide the range of the defined values by equal ratios, cut to two digits."""
    defined = values.dropna().astype(float)
    defined = defined[defined > 0]
    if defined.empty:
        return []
    spaced = np.geomspace(defined.min(), defined.max(), most).clip(max=defined.max())
    units = 10.0 ** (np.floor(np.log10(spaced)) - 1)
    return sorted({float(f"{level:.6g}") for level in np.floor(spaced / units) * units})
