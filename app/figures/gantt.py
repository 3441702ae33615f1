"""A bar per request: waiting, computing its prompt, giving its answer."""

import numpy as np
import pandas as pd

from app.figures.canvas import Figure, canvas
from app.figures.sampling import as_float32, evenly
from app.figures.text import plain

MOST_REQUESTS = 120
_PHASES = (
    ("waiting", "#9AA0AC", "/"),
    ("prefill", "#D55E00", ""),
    ("decode", "#0072B2", ""),
)
_OUTSIDE = {"waiting": "waiting", "prefill": "until the first token", "decode": "streaming"}


def gantt(requests: pd.DataFrame, most: int = MOST_REQUESTS) -> Figure:
    """One row per finished request in the order of arrival, evenly sampled.

    A load test sees no queue: there one bar lasts from the arrival to the first token.
    """
    done = requests[requests["status"] == "finished"].sort_values("scheduled_s", kind="stable")
    shown = evenly(done, most)
    alt = f"Timelines of {len(shown)} of {len(done)} finished requests, in the order of arrival."
    figure = canvas("time, s", "request, in order of arrival", alt)
    inside = bool(shown["queue_s"].notna().any())
    admitted_s = shown["scheduled_s"] + shown["queue_s"].fillna(0.0)
    stamps = [shown["scheduled_s"], admitted_s, shown["first_token_s"], shown["last_token_s"]]
    for place, (phase, colour, pattern) in enumerate(_PHASES):
        if phase == "waiting" and not inside:
            continue
        figure.add_bar(
            orientation="h",
            y=np.arange(len(shown)),
            base=as_float32(stamps[place]),
            x=as_float32(stamps[place + 1] - stamps[place]),
            text=[plain(name) for name in shown["request_id"]],
            textposition="none",
            name=phase if inside else _OUTSIDE[phase],
            marker={"color": colour, "pattern": {"shape": pattern}, "line": {"width": 0}},
            hovertemplate="%{text}: %{x:.4g} s<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(barmode="overlay", bargap=0.15, height=420)
    figure.update_yaxes(autorange="reversed", showticklabels=False)
    return figure
