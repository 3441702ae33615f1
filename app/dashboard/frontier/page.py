"""Frontier: a grid of scenarios; throughput of a replica against the speed for a user."""

from typing import Any

import pandas as pd
import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import chart, downloads, table
from servetwin.app.dashboard.formatting import page_text
from servetwin.app.dashboard.frontier import frontier_grid
from servetwin.app.dashboard.grid import default_rates, finished_points, grid_job
from servetwin.app.dashboard.jobs.job import Job, find_job, watch_job
from servetwin.app.dashboard.jobs.simulated_items import AXES, GridScenario
from servetwin.app.dashboard.scenario.sidebar import current_scenario, show_scenario
from servetwin.app.dashboard.scenario_words import grid_source
from servetwin.app.dashboard.widgets import control, share_input
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.sim.experiments import sweep as frontier
from servetwin.sim.experiments.sweep import PROBLEM

_JOB = "frontier"
_CHART = "frontier_chart"
_SEQUENCES = "16, 64, 256"
_Y = {"goodput": frontier.GOODPUT, "output throughput": frontier.THROUGHPUT}


def page() -> None:
    """Draw the page."""
    st.title("Frontier")
    st.caption(page_text("frontier"))
    base = current_scenario()
    with st.form("frontier_form"):
        texts = _axes(base)
        pressed = st.form_submit_button("Run the grid", type="primary")
    if grid_job(_JOB, base, lambda: frontier_grid.scenarios(base, texts), pressed=pressed):
        share, y = _shown_choices(base)
        watch_job(_JOB, lambda job: _draw(job, share, y))


def _axes(base: ScenarioFile) -> dict[str, str]:
    defaults = {"rate": default_rates("frontier", base), "max_seqs": _SEQUENCES}
    places = [st.container(), *st.columns(len(AXES) - 1, vertical_alignment="bottom")]
    return {
        axis: control(f"frontier_{axis}", defaults.get(axis, ""), place, label=label)
        for place, (axis, label) in zip(places, AXES.items(), strict=True)
    }


def _shown_choices(base: ScenarioFile) -> tuple[float, str]:
    with st.container(horizontal=True, gap="large"):
        help_ = "; ".join(f"{name}: {frontier_grid.Y_DEFINITIONS[y]}" for name, y in _Y.items())
        name = control("frontier_y", width=280, help=help_)
        with st.container(width=300):
            return share_input("frontier_share", base), _Y[name]


def _draw(job: "Job[GridScenario, Any]", share: float, y: str) -> None:
    base, points = job.note
    frame = finished_points(job)
    feasible = frame[frame[PROBLEM] == ""].copy()
    if feasible.empty:
        return
    feasible["on_front"] = frontier.on_front(feasible, frontier.INTERACTIVITY, y)
    best = frontier.best_point(feasible, y, share)
    st.markdown(f"**{frontier_grid.conclusion(feasible, y, share)}**")
    figure = figures.frontier(
        feasible, y, frontier_grid.Y_TITLES[y], frontier_grid.series_groups(points),
        share=share, best=best, tpot_limit_s=base.slo.slo().tpot_s,
    )  # fmt: skip
    options = {} if job.is_running else {"on_select": _load, "selection_mode": "points"}
    chart(figure, _CHART if options else f"{_CHART}_so_far", grid_source(base), **options)
    st.caption(page_text("frontier.symbols", share=100 * share))
    if not job.is_running:
        _levels(feasible, y)
        downloads(frame, "frontier")


def _levels(found: pd.DataFrame, y: str) -> None:
    st.subheader("At a given speed for a user")
    levels = frontier.round_levels(found[frontier.INTERACTIVITY])
    frame = frontier_grid.level_table(found, levels, y)
    digits = st.column_config.NumberColumn(format="%.4g")
    columns = dict.fromkeys(frame.select_dtypes("number").columns, digits)
    alt = "The best point at each speed."
    table(frame, alt, key="frontier_levels", column_config=columns)


def _load() -> None:
    """Show the scenario of the clicked point at the side."""
    job = find_job(_JOB)
    picked = st.session_state[_CHART]["selection"]["points"]
    if job is None or not picked or "customdata" not in picked[0]:
        return
    custom = picked[0]["customdata"]
    place = int(custom[0] if isinstance(custom, list) else custom)
    show_scenario(job.items[place].file)
