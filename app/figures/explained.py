"""Where the time of one request went: a bar of its parts, and how parts look wherever drawn."""

from collections.abc import Mapping

from app.figures.canvas import Figure, canvas
from app.figures.text import plain

PART_LOOKS = {
    "send_lag": ("client late", "#9AA0AC", "/"),
    "api": ("API", "#779988", "\\"),
    "queue": ("waiting", "#9AA0AC", "/"),
    "first_token": ("until the first token", "#D55E00", ""),
    "prefill": ("prefill", "#D55E00", ""),
    "transfer": ("transfer", "#007788", "."),
    "decode": ("decode", "#0072B2", ""),
    "stalled": ("stalled by prompts", "#DD7755", "+"),
    "preempted": ("preempted", "#4444FF", "x"),
    "streaming": ("streaming", "#0072B2", ""),
}
"""Name, colour and pattern of the parts and spans of an explained request."""

_WIDE = 0.07
"""Share of the latency from which on a part has room for its name."""


def request_parts(request_id: str, parts_s: Mapping[str, float]) -> Figure:
    """The parts of a request's latency as one bar; parts of no length are left out."""
    parts = {part: parts_s[part] for part in PART_LOOKS if parts_s.get(part, 0.0) > 0}
    whole_s = sum(parts.values())
    figure = canvas("part of the E2E latency, s", "", _alt(request_id, parts, whole_s))
    for part, seconds in parts.items():
        name, colour, pattern = PART_LOOKS[part]
        share = seconds / whole_s
        figure.add_bar(
            orientation="h",
            y=[plain(request_id)],
            x=[seconds],
            name=name,
            text=f"{name}<br>{seconds:.3g} s" if share >= _WIDE else "",
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            marker={
                "color": colour,
                "pattern": {"shape": pattern, "fillmode": "overlay", "solidity": 0.15},
            },
            hovertemplate=f"%{{x:.4g}} s, {share:.1%} of the latency<extra>{name}</extra>",
        )
    figure.update_layout(
        barmode="stack", height=170, uniformtext={"minsize": 11, "mode": "hide"},
        legend_traceorder="normal",
    )  # fmt: skip
    figure.update_yaxes(type="category", showticklabels=False)
    return figure


def _alt(request_id: str, parts: Mapping[str, float], whole_s: float) -> str:
    said = ", ".join(f"{PART_LOOKS[part][0]} {seconds:.3g} s" for part, seconds in parts.items())
    return f"Where the {whole_s:.3g} s of request {request_id} went: {said or 'nowhere'}."
