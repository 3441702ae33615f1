"""Figures of a grid of scenarios: throughput against a user's speed, and a heat map."""

import pandas as pd

from app.figures.canvas import Figure, canvas, escape_markup, plot
from app.figures.palette import LIMIT_COLOUR, Look, Looks

_X = "interactivity_tokens_per_s"
_SHADE = "rgba(128,128,128,0.14)"


def frontier(
    points: pd.DataFrame,
    y: str,
    y_title: str,
    looks: Looks,
    *,
    share: float,
    best: int | None = None,
    tpot_limit_s: float | None = None,
) -> Figure:
    """Draw throughput against the speed that a user sees, a line per configuration.

    ``points`` have ``series`` (in ``looks``), ``label``, interactivity, ``y``,
    ``slo_attainment`` and ``on_front``; customdata is a point's row label.

    Filled symbols keep the SLO for ``share`` of the requests, open ones do not. The star is
    ``best``; the region within ``tpot_limit_s`` is shaded.
    """
    defined = points.dropna(subset=[_X, y])
    figure = canvas("speed for a user, tokens/s (1 / median TPOT)", y_title, "")
    _add_front(figure, defined, y)
    for name, of_series in defined.groupby("series", sort=False):
        _add_series(figure, str(name), of_series, y, looks[str(name)], share)
    if best is not None and best in defined.index:
        _add_star(figure, defined.loc[[best]], y)
    most = float(defined[_X].max()) * 1.06 if len(defined) else 1.0
    if tpot_limit_s is not None:
        _shade(figure, 1 / tpot_limit_s, most)
    figure.update_xaxes(range=[0, most])
    figure.update_layout(height=460, meta={"alt": _alt(defined, y, y_title, best)})
    return figure


def heat_map(shares: pd.DataFrame, x_title: str, share_title: str) -> Figure:
    """Draw ``shares`` (0 to 1) in per cent, written into each cell; undefined cells stay empty.

    ``shares`` has a row per policy and a column per rate.
    Columns are categories: equal widths, whatever the numbers.
    """
    percent = 100 * shares.astype(float)
    figure = canvas(x_title, "", _heat_map_alt(shares, share_title))
    figure.add_heatmap(
        x=[f"{column:g}" for column in shares.columns],
        y=[escape_markup(name) for name in shares.index],
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


def _add_front(figure: Figure, points: pd.DataFrame, y: str) -> None:
    front = points[points["on_front"]].sort_values(_X)
    figure.add_scatter(
        x=front[_X], y=front[y], name="Pareto front", mode="lines", hoverinfo="skip",
        line={"color": LIMIT_COLOUR, "width": 7, "shape": "vh"}, opacity=0.4,
    )  # fmt: skip


def _add_series(
    figure: Figure, name: str, points: pd.DataFrame, y: str, look: Look, share: float
) -> None:
    keeps = points["slo_attainment"] >= share
    line = {"color": look.colour, "dash": look.dash, "width": 1.5}
    symbols = [look.symbol if kept else f"{look.symbol}-open" for kept in keeps]
    marker = {"color": look.colour, "symbol": symbols, "size": 11, "line": {"width": 2}}
    said = [
        f"{escape_markup(label)}<br>{100 * kept:.1f} % within the SLO"
        for label, kept in zip(points["label"], points["slo_attainment"], strict=True)
    ]
    hover = "%{text}<br>%{y:.4g} at %{x:.4g} tokens/s for a user<extra></extra>"
    options = {"line": line, "marker": marker, "customdata": list(points.index), "text": said}
    plot(figure, "lines+markers", escape_markup(name), points[_X], points[y], hover, **options)


def _add_star(figure: Figure, best: pd.DataFrame, y: str) -> None:
    edge = {"color": "#5B6070", "width": 1.5}
    marker = {"symbol": "star", "size": 24, "color": "#E69F00", "line": edge}
    said, hover = [escape_markup(label) for label in best["label"]], "best: %{text}<extra></extra>"
    options = {"marker": marker, "customdata": list(best.index), "text": said}
    plot(figure, "markers", "best within the SLO", best[_X], best[y], hover, **options)


def _shade(figure: Figure, least: float, most: float) -> None:
    if least >= most:
        return
    figure.add_vrect(
        x0=least, x1=most, fillcolor=_SHADE, line_width=0, layer="below",
        annotation_text=f"median TPOT within the SLO (from {least:.3g} tokens/s)",
        annotation_position="top right",
    )  # fmt: skip


def _alt(points: pd.DataFrame, y: str, y_title: str, best: int | None) -> str:
    alt = [f"{len(points)} points: {y_title} against tokens per second for a user."]
    if best is not None and best in points.index:
        row = points.loc[best]
        alt.append(f"Best is {row['label']}: {row[y]:.4g} at {row[_X]:.4g}.")
    return " ".join(alt)


def _heat_map_alt(shares: pd.DataFrame, share_title: str) -> str:
    alt = [f"{share_title} by policy and rate."]
    for name, row in shares.iterrows():
        cells = ", ".join(f"{100 * v:.1f} at {rate:g}" for rate, v in row.dropna().items())
        alt.append(f"{name}: {cells or 'not simulated'}.")
    return " ".join(alt)
