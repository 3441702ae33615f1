"""A device's memory as a stacked bar: weights, keys and values, states, what is free."""

from collections.abc import Mapping

from app.figures.canvas import Figure, canvas
from app.figures.palette import LIMIT_COLOUR

_GB = 1e9
_PARTS = {
    "weights": ("#5B6070", ""),
    "KV": ("#0072B2", ""),
    "state": ("#007788", "."),
    "free": ("#9AA0AC", ""),
    "kept back": ("#5B6070", "/"),
}


def device_memory(bars: Mapping[str, Mapping[str, float]], capacity_bytes: float) -> Figure:
    """A bar per name, its parts in bytes, and the memory of the device.

    Where the parts do not fit, the bar passes the line.
    """
    said = [_said(name, parts) for name, parts in bars.items()]
    alt = f"Device memory of {capacity_bytes / _GB:,.4g} GB. {' '.join(said)}"
    figure = canvas("memory, GB (10^9 bytes)", "", alt)
    for part, (colour, pattern) in _PARTS.items():
        amounts = [parts[part] / _GB for parts in bars.values()]
        if any(amounts):
            figure.add_bar(
                orientation="h",
                y=list(bars),
                x=amounts,
                name=part,
                marker={"color": colour, "pattern": {"shape": pattern}},
                hovertemplate=f"%{{x:,.4g}} GB {part}<extra>%{{y}}</extra>",
            )
    figure.add_vline(
        x=capacity_bytes / _GB,
        line={"color": LIMIT_COLOUR, "dash": "dash"},
        annotation_text=f"{capacity_bytes / _GB:,.4g} GB",
        annotation_position="top",
    )
    figure.update_layout(
        barmode="stack", height=160 + 50 * len(bars), legend={"traceorder": "normal", "y": 1.2}
    )
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def _said(name: str, parts: Mapping[str, float]) -> str:
    amounts = ", ".join(f"{part} {size / _GB:,.4g} GB" for part, size in parts.items() if size)
    return f"{name}: {amounts}."
