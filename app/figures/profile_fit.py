"""How well a profile fits its calibration: residuals, and the step times that it gives."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from servetwin.app.figures.canvas import (
    OF_RUN,
    Figure,
    Frames,
    add_band,
    as_float32,
    canvas,
    line_of,
    plot,
    set_alt,
    steps_of,
)
from servetwin.app.figures.palette import LIMIT_LINE, Look, Looks


def residual_cdf(noise: Mapping[str, Sequence[float]], looks: Looks) -> Figure:
    """Draw the distribution of measured - fitted over the calibrated steps, a line per KV layout.

    ``noise`` are the quantiles of measured / fitted that a profile keeps.
    """
    title = "How far single steps are from the fitted profile"
    figure = canvas("measured - fitted, % of fitted", "share of steps, %", "", title)
    alt = ["Residuals of the calibration."]
    for layout, quantiles in noise.items():
        left = 100 * (np.asarray(quantiles, float) - 1)
        shares = 100 * (np.arange(len(left)) + 0.5) / len(left)
        hover = "%{y:.3g} % of the steps within %{x:+.3g} %" + OF_RUN
        plot(figure, "lines", layout, left, shares, hover, line=steps_of(looks[layout]))
        low, high = np.quantile(left, (0.05, 0.95))
        alt.append(f"{layout}: nine of ten steps between {low:+.1f} and {high:+.1f} %.")
    figure.add_vline(x=0, line=LIMIT_LINE)
    set_alt(figure, " ".join(alt))
    figure.update_xaxes(ticksuffix=" %", zeroline=False)
    figure.update_yaxes(range=[0, 101])
    return figure


def step_time_curve(curves: Frames, x: str, looks: Looks) -> Figure:
    """Draw the fitted duration of a step over ``x``, with the spread of single steps.

    The line is dotted where nothing was measured.

    Columns of a curve: ``x``, ``seconds``, ``low_s``, ``high_s``, ``measured`` (whether all its
    features are within what was measured).
    """
    title = f"Duration of a step by {x.rpartition(', ')[0] or x}"
    figure = canvas(x, "duration of a step, ms", "", title)
    alt = [f"Fitted duration of a step over {x}."]
    for name, curve in curves.items():
        look = looks[name]
        _add_spread(figure, curve, look)
        inside = curve["measured"].to_numpy(bool)
        last = max(int(inside.sum()) - 1, 0)
        for part, dash, words in (
            (curve[inside], look.dash, name),
            (curve.iloc[last:], "dot", f"{name}, not measured"),
        ):
            if len(part) > 1:
                figure.add_scatter(
                    x=part["x"].to_numpy(float), y=as_float32(1e3 * part["seconds"]), name=words,
                    mode="lines", line={**line_of(look), "dash": dash}, legendgroup=name,
                    hovertemplate="%{y:.4g} ms at %{x:.4g}<extra>" + words + "</extra>",
                )  # fmt: skip
        ends = curve.iloc[[0, -1]]
        alt.append(f"{name}: {1e3 * ends['seconds'].min():.3g} to "
                    f"{1e3 * ends['seconds'].max():.3g} ms.")  # fmt: skip
    set_alt(figure, " ".join(alt))
    return figure


def _add_spread(figure: Figure, curve: pd.DataFrame, look: Look) -> None:
    if np.allclose(curve["low_s"], curve["high_s"]):
        return
    red, green, blue = (int(look.colour[place : place + 2], 16) for place in (1, 3, 5))
    low, high = (as_float32(1e3 * curve[bound]) for bound in ("low_s", "high_s"))
    fill = f"rgba({red},{green},{blue},0.18)"
    add_band(figure, "nine of ten steps", curve["x"].to_numpy(float), low, high, fill)
