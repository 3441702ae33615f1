"""What techniques cost in quality against what they gain in throughput."""

import pandas as pd

from servetwin.app.figures.canvas import Figure, canvas, escape_markup, plot
from servetwin.app.figures.palette import LIMIT_COLOUR, looks

METRICS = ("kept", "perplexity", "accuracy")
_LOOKS = looks(METRICS)
_X, _Y = "throughput_percent", "loss_percent"


def quality_against_throughput(points: pd.DataFrame) -> Figure:
    """Draw the relative loss of quality upwards against the gain in throughput to the right.

    ``points`` have ``technique``, ``metric`` (one of ``METRICS``), both figures in per cent,
    ``on_front``, ``is_other_model`` and ``source``. Open symbols are those of another model. The
    front of each metric goes through what is kept as well.
    """
    title = "What techniques cost in quality, and gain in throughput"
    figure = canvas("throughput, % more than without", "loss of quality, %", _alt(points), title)
    for metric in METRICS[1:]:
        _add_front(figure, points, metric)
    for metric in METRICS:
        _add_points(figure, metric, points[points["metric"] == metric])
    figure.update_yaxes(rangemode="normal", zeroline=True)
    figure.update_layout(height=460)
    return figure


def _add_front(figure: Figure, points: pd.DataFrame, metric: str) -> None:
    comparable = points["metric"].isin(["kept", metric])
    front = points[points["on_front"] & comparable].sort_values([_X, _Y])
    if len(front) > 1:
        figure.add_scatter(
            x=front[_X], y=front[_Y], name=f"front, {metric}", mode="lines", hoverinfo="skip",
            line={"color": LIMIT_COLOUR, "width": 3, "dash": _LOOKS[metric].dash, "shape": "hv"},
            opacity=0.5,
        )  # fmt: skip


def _add_points(figure: Figure, metric: str, points: pd.DataFrame) -> None:
    if points.empty:
        return
    look = _LOOKS[metric]
    symbols = [f"{look.symbol}-open" if far else look.symbol for far in points["is_other_model"]]
    marker = {"color": look.colour, "symbol": symbols, "size": 11, "line": {"width": 2}}
    hover = "%{customdata[0]}: %{y:.3g} % for %{x:+.3g} %<br>%{customdata[1]}<extra></extra>"
    said = [
        [escape_markup(name), escape_markup(source)]
        for name, source in zip(points["technique"], points["source"], strict=True)
    ]
    texts = [
        escape_markup(name) if best else ""
        for name, best in zip(points["technique"], points["on_front"], strict=True)
    ]
    options = {"marker": marker, "customdata": said, "text": texts, "textposition": "top center"}
    plot(figure, "markers+text", metric, points[_X], points[_Y], hover, **options)


def _alt(points: pd.DataFrame) -> str:
    said = [
        f"{row['technique']}: {row[_Y]:.3g} % for {row[_X]:+.3g} %"
        for _, row in points[points["on_front"]].iterrows()
    ]
    return (
        f"{len(points)} techniques: loss of quality against gain in throughput. On the front: "
        f"{', '.join(said) or 'none'}."
    )
