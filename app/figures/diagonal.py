"""The line on which a prediction equals what was measured, and a band around it."""

from servetwin.app.figures.canvas import Figure, add_band
from servetwin.app.figures.palette import LIMIT_LINE

BAND = 0.1
"""Relative error that the shaded band allows."""


def add_diagonal(
    figure: Figure, least: float, most: float, in_legend: bool = True, **panel: int
) -> None:
    """Draw the diagonal from ``least`` to ``most``; ``panel`` is as for ``add_band``."""
    ends = [least, most]
    low, high = ([slope * end for end in ends] for slope in (1 - BAND, 1 + BAND))
    fill = "rgba(128,128,128,0.18)"
    add_band(figure, f"within {100 * BAND:.0f} %", ends, low, high, fill, in_legend, **panel)
    figure.add_scatter(
        x=ends, y=ends, mode="lines", line={**LIMIT_LINE, "width": 1.5}, name="equal",
        hoverinfo="skip", showlegend=in_legend, **panel,
    )  # fmt: skip
