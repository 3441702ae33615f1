"""Stacked bars: what memory holds, what simulated time rests on, where a request's time went."""

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

import pandas as pd

from servetwin.app.figures.canvas import Figure, canvas, escape_markup
from servetwin.app.words import asset_table, origin_shares, short

# Name, colour and pattern.
Part = tuple[str, str, str]

_LOOKS = asset_table("looks.yaml")
# Name, colour and pattern of the parts and spans of an explained request.
PART_LOOKS: dict[str, Part] = _LOOKS["request"]

# Of a line that fits beside the controls in a window of 900 px, and its height.
_LEGEND_CHARACTERS, _LEGEND_LINE_PX = 64, 18
# Share of the bar from which on a part has room for its name.
_LABELLED_SHARE = 0.07


def memory_bar(bars: Mapping[str, Mapping[str, float]], unit: str) -> Figure:
    """Draw a bar per name; parts are weights, live, reserved, cached, waste, free, in ``unit``.

    Raises ``KeyError`` for another part.
    """
    unknown = {part for parts in bars.values() for part in parts} - _LOOKS["kv_memory"].keys()
    if unknown:
        raise KeyError(f"{min(unknown)}: a memory bar has {', '.join(_LOOKS['kv_memory'])}")
    alt = " ".join(_shares(name, parts, unit) for name, parts in bars.items())
    figure = canvas(f"memory, {unit}", "", alt, "What the memory holds, mean over time")
    for part, (colour, pattern) in _LOOKS["kv_memory"].items():
        amounts = [parts.get(part, 0.0) for parts in bars.values()]
        if any(amounts):
            figure.add_bar(
                orientation="h", y=list(bars), x=amounts, name=part,
                marker={"color": colour, "pattern": {"shape": pattern}},
                hovertemplate=f"%{{x:,.4g}} {unit} {part}<extra>%{{y}}</extra>",
            )  # fmt: skip
    figure.update_layout(barmode="stack", legend_traceorder="normal", height=110 + 50 * len(bars))
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def mean_kv_parts(steps: pd.DataFrame) -> dict[str, float]:
    """Return KV tokens by what they hold, on average over the time of the steps.

    ``steps`` have the columns of ``KVUsage`` (``servetwin replay --kv-usage``).
    """
    weights_s = steps["end_s"] - steps["start_s"]
    means = {
        name: float((steps[f"{name}_tokens"] * weights_s).sum() / weights_s.sum())
        for name in ("live", "reserved", "cached", "internal_waste", "external_waste", "free")
    }
    waste = means.pop("internal_waste") + means.pop("external_waste")
    return {**means, "waste": waste}


def provenance_bar(provenance: Mapping[str, Any]) -> Figure:
    """Draw one bar of the shares of busy time by origin (``RunProvenance.as_dict``)."""
    shares = origin_shares(provenance)
    listed = ", ".join(f"{one.name} {100 * one.share:.3g} %" for one in shares)
    alt = f"Where the step times come from: {listed or 'no step was run'}."
    title = "Where the step times come from"
    figure = canvas("share of simulated busy time, %", "", alt, title)
    lines = 0
    for one in shares:
        words = wrap(f"{one.name}: {one.meaning}", _LEGEND_CHARACTERS)
        lines += len(words)
        part = ("<br>".join(words), *one.look)
        hover = f"%{{x:.3g}} % {one.name}<extra></extra>"
        label = f"{one.name} {100 * one.share:.3g} %"
        _add_labelled_part(figure, "", part, 100 * one.share, label, hover)
    _lay_out_single_bar(figure, 130 + _LEGEND_LINE_PX * lines)
    figure.update_xaxes(range=[0, 100], ticksuffix=" %")
    return figure


def request_parts(request_id: str, parts_s: Mapping[str, float]) -> Figure:
    """Draw the parts of a request's latency as one bar; parts of no length are left out."""
    parts = {part: parts_s[part] for part in PART_LOOKS if parts_s.get(part, 0.0) > 0}
    whole_s = sum(parts.values())
    named = ", ".join(f"{PART_LOOKS[part][0]} {seconds:.3g} s" for part, seconds in parts.items())
    alt = f"Where the {whole_s:.3g} s of request {request_id} went: {named or 'nowhere'}."
    title = f"Where the {whole_s:.3g} s of request {request_id} went"
    figure = canvas("part of the E2E latency, s", "", alt, title)
    for part, seconds in parts.items():
        look, share = PART_LOOKS[part], seconds / whole_s
        label = f"{look[0]}<br>{seconds:.3g} s" if share >= _LABELLED_SHARE else ""
        hover = f"%{{x:.4g}} s, {100 * share:.1f} % of the latency<extra>{look[0]}</extra>"
        _add_labelled_part(figure, escape_markup(request_id), look, seconds, label, hover)
    _lay_out_single_bar(figure, 170)
    figure.update_layout(legend_traceorder="normal")
    figure.update_yaxes(showticklabels=False)
    return figure


def _add_labelled_part(
    figure: Figure, bar: str, part: Part, amount: float, label: str, hover: str
) -> None:
    name, colour, pattern = part
    shape = {"shape": pattern, "fillmode": "overlay", "solidity": 0.15}
    light = sum(w * int(colour[i : i + 2], 16) for i, w in ((1, 0.3), (3, 0.59), (5, 0.11))) > 110
    figure.add_bar(
        orientation="h", y=[bar], x=[amount], name=name, text=label, textposition="inside",
        insidetextanchor="middle", textangle=0, hovertemplate=hover,
        insidetextfont={"color": "#000000" if light else "#ffffff"},
        marker={"color": colour, "pattern": shape},
    )  # fmt: skip


def _lay_out_single_bar(figure: Figure, height_px: int) -> None:
    small = {"minsize": 11, "mode": "hide"}
    figure.update_layout(barmode="stack", height=height_px, showlegend=True, uniformtext=small)
    figure.update_yaxes(type="category")


def _shares(name: str, parts: Mapping[str, float], unit: str) -> str:
    total = sum(parts.values())
    shares = ", ".join(
        f"{part} {100 * amount / total:.0f} %" for part, amount in parts.items() if total
    )
    return f"{name}: {short(total)} {unit}, {shares}."
