"""A share in per cent per policy and rate, written into each cell."""

import pandas as pd

from app.figures.canvas import Figure, canvas
from app.figures.text import plain


def heat_map(shares: pd.DataFrame, x_title: str, share_title: str) -> Figure:
    """``shares`` (0 to 1) has a row per policy and a column per rate; undefined cells stay empty.

    Columns are categories: equal widths, whatever the numbers.
    """
    percent = 100 * shares.astype(float)
    figure = canvas(x_title, "", _alt(shares, share_title))
    figure.add_heatmap(
        x=[f"{column:g}" for column in shares.columns],
        y=[plain(name) for name in shares.index],
        z=percent.to_numpy(),
        text=[["" if pd.isna(v) else f"{v:.1f}" for v in row] for row in percent.to_numpy()],
        texttemplate="%{text}",
        zmin=0,
        zmax=100,
        colorscale="Cividis",
        colorbar={"title": {"text": share_title, "side": "right"}},
        xgap=2,
        ygap=2,
        hovertemplate="%{y} at %{x} requests/s: %{z:.2f} %<extra></extra>",
        hoverongaps=False,
    )
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False)
    figure.update_layout(height=140 + 52 * len(shares))
    return figure


def _alt(shares: pd.DataFrame, share_title: str) -> str:
    said = [f"{share_title} by policy and rate."]
    for name, row in shares.iterrows():
        cells = ", ".join(f"{100 * v:.1f} at {rate:g}" for rate, v in row.dropna().items())
        said.append(f"{name}: {cells or 'not simulated'}.")
    return " ".join(said)
