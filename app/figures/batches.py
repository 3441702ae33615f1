"""Batches as bars in time: of decodes, of prompts, or of both."""

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import Figure, add_spans, pattern_marker
from servetwin.app.reports.assets import asset_table

MOST_BATCHES = 600
MIXES: dict[str, tuple[str, str]] = asset_table("looks.yaml")["batches"]
"""Colour and pattern by the share of prompts in the rows that a batch computes."""


def batch_bars(steps: pd.DataFrame, most: int = MOST_BATCHES) -> pd.DataFrame:
    """Return ``Run.steps`` as bars, at most ``most`` per replica: close ones are joined.

    Columns: ``replica``, ``start_s``, ``end_s``, ``busy_s``, ``steps``, ``rows`` and ``decodes``
    (rows computed in all these steps, and those of decodes), ``mix`` (of ``MIXES``).
    """
    rows = steps[["replica", "start_s", "end_s"]].assign(
        busy_s=steps["end_s"] - steps["start_s"],
        steps=steps["steps"],
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
        start_s, end_s = of["start_s"].to_numpy(float), of["end_s"].to_numpy(float)
        said = [_said(*values) for values in of[["steps", "rows", "decodes", "busy_s"]].values]
        hover = "%{text}, from %{base:.6g} s<extra>" + mix + "</extra>"
        marker, place = pattern_marker(colour, pattern), {"row": row, "col": 1, **options}
        add_spans(figure, mix, y, start_s, end_s, said, hover, marker=marker, **place)
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


def _said(steps: float, rows: float, decodes: float, busy_s: float) -> str:
    per_step = f"{rows / steps:.4g} rows, {decodes / steps:.4g} of them decodes"
    several = f"{steps:.0f} steps of about {per_step}" if steps > 1 else f"a step of {per_step}"
    return f"{several}: {1000 * busy_s:.4g} ms"
