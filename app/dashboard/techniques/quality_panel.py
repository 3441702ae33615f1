"""The Quality panel of the Techniques page: loss against throughput, and how it is known."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import chart, table
from servetwin.app.dashboard.formatting import page_text
from servetwin.app.dashboard.jobs.job import watch_job
from servetwin.app.dashboard.scenario.allowed_choices import offered_technique
from servetwin.app.dashboard.techniques import effects
from servetwin.app.dashboard.techniques.data_sheet_server import DataSheetServer
from servetwin.app.dashboard.techniques.effects_panel import JOB, job_of, measured, shown_techniques
from servetwin.app.dashboard.widgets import or_stop
from servetwin.app.reports.techniques.quality import (
    HAS_IT,
    RatedEffect,
    on_front,
    quality_cell,
    quality_source,
    rate_effect,
)
from servetwin.sim.techniques.effects import Effect
from servetwin.sim.techniques.quality import FORM, Quality, parse_own_qualities, quality_of
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment

_MOST_CHARACTERS = 4_000


def quality_panel(server: DataSheetServer, setup: Setup) -> None:
    """Draw quality against throughput for what was measured, then every source."""
    typed = st.text_area(
        "Your own values", key="techniques_own_quality", height=80, max_chars=_MOST_CHARACTERS,
        placeholder="kv-quantisation=accuracy:-0.2%@own evaluation, 2026-11",
        help=f"One a line: {FORM}. They come before published ones.",
    )  # fmt: skip
    own = or_stop(lambda: own_qualities(typed, effects.texts(server)))
    names = shown_techniques(server)
    if job_of(server) is None:
        _judged(server, setup, names, own)
    else:
        watch_job(JOB, lambda _: _judged(server, setup, names, own))


def _judged(
    server: DataSheetServer, setup: Setup, names: Sequence[str], own: Mapping[str, Quality]
) -> None:
    known = measured(server)
    shown = {text: effect for text, effect in known.items() if text in names}
    rated = judge_all(shown, server, own)
    points = quality_points(rated)
    if points.empty:
        st.info("Measure techniques under Effects: their throughput then stands beside quality.")
    else:
        chart(figures.quality_against_throughput(points), "techniques_quality", server.source())
        st.caption(page_text("techniques.quality"))
    frame = quality_table(names, rated, setup, own)
    columns = {
        COLUMNS["technique"]: st.column_config.TextColumn(pinned=True),
        COLUMNS["throughput"]: st.column_config.NumberColumn(format="%.4g"),
    }
    alt = "What each technique costs in quality, and how that is known."
    key = "techniques_quality_table"
    table(frame, alt, "technique_quality", key=key, column_config=columns)


COLUMNS = {"technique": "technique", "quality": "quality", "throughput": "throughput, %",
           "front": "on the front", "known": "how it is known"}  # fmt: skip


def own_qualities(text: str, names: Sequence[str]) -> dict[str, Quality]:
    """Return one's own values, one a line, of the techniques of ``names``.

    Raises ``PolicyError`` that names the technique and the right form.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return parse_own_qualities(lines, map(offered_technique, names), "own values")


def judge_all(
    effects: Mapping[str, Effect], server: DataSheetServer, own: Mapping[str, Quality]
) -> dict[str, RatedEffect]:
    """Return techniques measured on ``server`` by their texts, each with its quality."""
    setup, load = server.setup(), Experiment()
    rated = {text: rate_effect(effect, setup, load, own) for text, effect in effects.items()}
    return {
        text: replace(one, aside=HAS_IT) if server.text_of(one.effect.technique.name) else one
        for text, one in rated.items()
    }


def quality_table(
    names: Sequence[str],
    judged: Mapping[str, RatedEffect],
    setup: Setup,
    own: Mapping[str, Quality],
) -> pd.DataFrame:
    """Return a row per technique text, with its throughput where that was measured."""
    fronts = dict(zip(judged, on_front(list(judged.values())), strict=True))
    return pd.DataFrame(
        [_row(text, judged.get(text), fronts.get(text), setup, own) for text in names],
        columns=list(COLUMNS.values()),
    )


def quality_points(judged: Mapping[str, RatedEffect]) -> pd.DataFrame:
    """Return the points of ``app.figures.techniques``: those that can be compared."""
    columns = ["technique", "metric", "throughput_percent", "loss_percent", "on_front",
               "is_other_model", "source"]  # fmt: skip
    fronts = on_front(list(judged.values()))
    rows = [
        _point(text, one, best)
        for (text, one), best in zip(judged.items(), fronts, strict=True)
        if best is not None
    ]
    return pd.DataFrame(rows, columns=columns)


def _row(
    text: str, one: RatedEffect | None, best: bool | None, setup: Setup, own: Mapping[str, Quality]
) -> dict[str, Any]:
    quality = quality_of(offered_technique(text), setup.deployment.model, own)
    gain = one.throughput_change if one else None
    aside = one.aside if one else "not measured"
    cells = (
        text,
        quality_cell(quality),
        None if gain is None else 100 * gain,
        {True: "yes", False: "no", None: aside}[best],
        quality_source(quality),
    )
    return dict(zip(COLUMNS.values(), cells, strict=True))


def _point(text: str, one: RatedEffect, best: bool) -> tuple[Any, ...]:
    quality, gain = one.quality, one.throughput_change
    assert quality is not None  # one on or off the front has both
    assert gain is not None
    is_other = quality.basis == "nearest model"
    metric, loss = quality.metric or "kept", 100 * quality.loss
    return text, metric, 100 * gain, loss, best, is_other, quality_source(quality)
