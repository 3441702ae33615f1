"""How the error of a prediction is drawn: a diamond with its interval, on a bar of the noise."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from app.figures.palette import COLOURS, LIMIT_COLOUR

NOISE = "rgba(128,128,128,0.5)"
ZERO_LINE = {"color": LIMIT_COLOUR, "dash": "dash"}

Values = npt.NDArray[np.float64]


def error_points(
    axis: Literal["x", "y"], error: Values, low: Values, high: Values
) -> dict[str, Any]:
    """Options of ``add_scatter``: ``error`` along ``axis``, its interval ``low`` to ``high``."""
    return {
        axis: error,
        "mode": "markers",
        "marker": {"color": COLOURS[0], "size": 10, "symbol": "diamond"},
        f"error_{axis}": {
            "type": "data",
            "symmetric": False,
            "array": high - error,
            "arrayminus": error - low,
            "color": COLOURS[0],
        },
    }


def bars_around_zero(axis: Literal["x", "y"], half: Values, colour: str) -> dict[str, Any]:
    """Options of ``add_bar``: ``half`` to either side of 0; hovering tells ``half``."""
    return {
        axis: 2 * half,
        "base": -half,
        "customdata": half,
        "marker": {"color": colour, "line": {"width": 0}},
    }
