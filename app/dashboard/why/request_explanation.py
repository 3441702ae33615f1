"""One request explained: its verdict, its parts, and the steps that it waited behind."""

from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st

from servetwin.app.dashboard.charts import chart, table
from servetwin.app.dashboard.formatting import escaped
from servetwin.app.figures import stacked_bars
from servetwin.app.reports.explanation import (
    costliest_delay,
    neighbour_lines,
    request_line,
    verdict,
)
from servetwin.app.words import METRICS, asset_table
from servetwin.sim.explain.explain import Explanation
from servetwin.sim.records.metrics import duration_unit

_STEPS: dict[str, str] = asset_table("words.yaml")["steps"]


def draw_explanation(
    explanation: Explanation, behind: pd.DataFrame, zoom: Callable[[], None], source: str
) -> None:
    """Draw why a request took as long as it did; ``behind`` are the steps that it waited behind.

    ``zoom`` shows all its time in the timeline; ``source`` is for the picture.
    """
    st.markdown(f"**{escaped(_sentence(verdict(explanation)))}**")
    lines = [request_line(explanation), *neighbour_lines(explanation)]
    st.caption(escaped(" ".join(map(_sentence, lines))))
    st.button("Show it in the timeline", on_click=zoom)
    if explanation.parts_s:
        chart(
            stacked_bars.request_parts(explanation.request_id, explanation.parts_s),
            "why_parts",
            source,
        )
        with st.expander("The parts as a table"):
            table(parts_table(explanation), "Where its time went.")
    for note in explanation.notes:
        st.caption(escaped(_sentence(note)))
    if len(behind):
        _draw_steps(behind)


def parts_table(explanation: Explanation) -> pd.DataFrame:
    """Return every part as a duration and as a share of the latency."""
    whole_s = sum(explanation.parts_s.values()) or 1.0
    unit, factor = duration_unit([whole_s])
    return pd.DataFrame(
        {"part": stacked_bars.PART_LOOKS[part][0], unit: factor * s, "share, %": 100 * s / whole_s}
        for part, s in explanation.parts_s.items()
    )


def behind_table(steps: pd.DataFrame) -> pd.DataFrame:
    """Return rows of ``Run.steps`` with the columns that explain why a request waited."""
    frame = steps[list(_STEPS)].rename(columns=_STEPS)
    frame.insert(1, "lasted, ms", 1e3 * (steps["end_s"] - steps["start_s"]))
    return frame


def slowest_table(explanations: Sequence[Explanation]) -> pd.DataFrame:
    """Return a row per request: its latencies, and what delayed it."""
    times = {
        METRICS[name].fitting(getattr(one, name) for one in explanations): name
        for name in ("e2e_s", "ttft_s", "tpot_s")
    }
    return pd.DataFrame(
        {
            "request": one.request_id,
            **{of.title: of.scaled(getattr(one, name)) for of, name in times.items()},
            "what delayed it": _delay(one),
        }
        for one in explanations
    )


def _delay(one: Explanation) -> str:
    """Return in a few words what ``verdict`` says, which a narrow window would cut off."""
    if not one.e2e_s or "decode" not in one.parts_s:
        return "not known"
    part = costliest_delay(one)
    if part is None:
        return "nothing"
    return f"{stacked_bars.PART_LOOKS[part][0]}, {100 * one.parts_s[part] / one.e2e_s:.0f} %"


def _draw_steps(steps: pd.DataFrame) -> None:
    count, first_s, last_s = int(steps["steps"].sum()), steps["start_s"].min(), steps["end_s"].max()
    which = "step" if count == 1 else f"{count} steps"
    with st.expander(f"The {which} that it waited behind, {first_s:.5g} to {last_s:.5g} s"):
        table(behind_table(steps), "The steps that the request waited behind.", height=280)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
