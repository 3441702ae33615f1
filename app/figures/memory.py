"""Where the memory goes: weights, live keys and values, waste, free."""

from collections.abc import Mapping

import pandas as pd

from app.figures.canvas import Figure, canvas

_PARTS = {
    "weights": ("#5B6070", ""),
    "live": ("#0072B2", ""),
    "reserved": ("#5599CC", "/"),
    "cached": ("#007788", "."),
    "waste": ("#D55E00", "x"),
    "free": ("#9AA0AC", ""),
}


def memory_bar(bars: Mapping[str, Mapping[str, float]], unit: str) -> Figure:
    """A stacked bar per name; parts are weights, live, reserved, cached, waste, free, in ``unit``.

    Raises ``KeyError`` for another part.
    """
    unknown = {part for parts in bars.values() for part in parts} - _PARTS.keys()
    if unknown:
        raise KeyError(f"{min(unknown)}: a memory bar has {', '.join(_PARTS)}")
    said = [_said(name, parts, unit) for name, parts in bars.items()]
    figure = canvas(f"memory, {unit}", "", " ".join(said))
    for part, (colour, pattern) in _PARTS.items():
        if any(part in parts for parts in bars.values()):
            figure.add_bar(
                orientation="h",
                y=list(bars),
                x=[parts.get(part, 0.0) for parts in bars.values()],
                name=part,
                marker={"color": colour, "pattern": {"shape": pattern}},
                hovertemplate=f"%{{x:.4g}} {unit} {part}<extra>%{{y}}</extra>",
            )
    figure.update_layout(barmode="stack", height=110 + 50 * len(bars))
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def mean_kv_parts(steps: pd.DataFrame) -> dict[str, float]:
    """KV tokens by what they hold, on average over the time of the steps.

    ``steps`` have the columns of ``KVUsage`` (``servetwin replay --kv-usage``).
    """
    weights_s = steps["end_s"] - steps["start_s"]
    means = {
        name: float((steps[f"{name}_tokens"] * weights_s).sum() / weights_s.sum())
        for name in ("live", "reserved", "cached", "internal_waste", "external_waste", "free")
    }
    waste = means.pop("internal_waste") + means.pop("external_waste")
    return {**means, "waste": waste}


def _said(name: str, parts: Mapping[str, float], unit: str) -> str:
    total = sum(parts.values())
    shares = ", ".join(f"{part} {amount / total:.0%}" for part, amount in parts.items() if total)
    return f"{name}: {total:.4g} {unit}, {shares}."
