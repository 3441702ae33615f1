"""The Quality panel of the Techniques page: loss against throughput, and how it is known."""

from collections.abc import Mapping, Sequence

import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import chart
from servetwin.app.dashboard.downloads import downloads
from servetwin.app.dashboard.jobs.job import watch_job
from servetwin.app.dashboard.techniques import effects, quality
from servetwin.app.dashboard.techniques.data_sheet_server import DataSheetServer
from servetwin.app.dashboard.techniques.effects_panel import shown_techniques
from servetwin.app.dashboard.techniques.measurements import JOB, job_of, measured
from servetwin.app.dashboard.widgets import or_stop
from servetwin.sim.techniques.quality import FORM, Quality
from servetwin.sim.techniques.setup import Setup

_MOST_CHARACTERS = 4_000


def quality_panel(server: DataSheetServer, setup: Setup) -> None:
    """Draw quality against throughput for what was measured, then every source."""
    typed = st.text_area(
        "Your own values", key="techniques_own_quality", height=80, max_chars=_MOST_CHARACTERS,
        placeholder="kv-quantisation=accuracy:-0.2%@own evaluation, 2026-11",
        help=f"One a line: {FORM}. They come before published ones.",
    )  # fmt: skip
    own = or_stop(lambda: quality.own_qualities(typed, effects.texts(server)))
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
    judged = quality.judge_all(shown, server, own)
    points = quality.quality_points(judged)
    if points.empty:
        st.info("Measure techniques under Effects: their throughput then stands beside quality.")
    else:
        chart(figures.quality_against_throughput(points), "techniques_quality", server.source())
        st.caption(
            "Right and low is better. Open symbols: measured on another model. Perplexity and "
            "accuracy are not compared with each other. Left out: what this server has already, "
            "what was measured under a load of its own, and what has no known quality."
        )
    table = quality.quality_table(names, judged, setup, own)
    st.dataframe(
        table, hide_index=True, placeholder="-", key="techniques_quality_table",
        column_config={
            quality.COLUMNS["technique"]: st.column_config.TextColumn(pinned=True),
            quality.COLUMNS["throughput"]: st.column_config.NumberColumn(format="%.4g"),
        },
        alt="What each technique costs in quality, and how that is known.",
    )  # fmt: skip
    downloads(table, "technique_quality")
