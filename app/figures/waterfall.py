"""The error of a prediction, part after part, down to what is left."""

from collections.abc import Sequence

import plotly.graph_objects as go  # type: ignore[import-untyped]

from servetwin.app.figures.canvas import Figure, canvas
from servetwin.app.figures.palette import COLOURS, LIMIT_LINE
from servetwin.app.reports.metric_labels import METRICS


def error_waterfall(
    metric: str,
    predicted: float,
    effects: Sequence[tuple[str, float | None, str]],
    left: float,
) -> Figure:
    """Draw the relative error of a mean latency as a waterfall.

    ``effects`` are (part, its share of the error, what was measured), in the order in which the
    parts were replaced; None for a part that was not measured, which is drawn as a gap.
    """
    label = METRICS[metric].label
    parts = ", ".join(f"{name} {_share(effect)}" for name, effect, _ in effects)
    alt = f"{label} is {100 * predicted:+.1f} % off: {parts}; {100 * left:+.1f} is left."
    title = f"Where the error of the mean {label} comes from"
    figure = canvas(f"error of mean {label}, % of measured", "", alt, title)
    names = [
        f"predicted {100 * predicted:+.1f} %",
        *(f"{name} {_share(effect)}" for name, effect, _ in effects),
        f"left {100 * left:+.1f} %",
    ]
    values = [predicted, *(-effect if effect else 0.0 for _, effect, _ in effects), left]
    figure.add_trace(
        go.Waterfall(
            orientation="h",
            y=names,
            x=[100 * value for value in values],
            measure=["absolute", *("relative" for _ in effects), "total"],
            customdata=["", *(note for _, _, note in effects), ""],
            hovertemplate="to %{final:+.3g} %<br>%{customdata}<extra>%{y}</extra>",
            connector={"line": LIMIT_LINE},
            increasing={"marker": {"color": COLOURS[1]}},
            decreasing={"marker": {"color": COLOURS[0]}},
            totals={"marker": {"color": COLOURS[2]}},
        )
    )
    figure.add_vline(x=0, line=LIMIT_LINE)
    figure.update_layout(height=130 + 32 * len(names), showlegend=False)
    figure.update_xaxes(ticksuffix=" %", zeroline=False, rangemode="normal")
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def _share(effect: float | None) -> str:
    """Return what stands beside the name of a part: its share of the error, in points."""
    if effect is None:
        return "(not measured)"
    return f"{100 * effect:+.1f}" if effect else "0"
