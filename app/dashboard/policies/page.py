"""Policies: each at each rate; who keeps the SLO, and throughput against the speed for a user."""

from typing import Any

import pandas as pd
import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import chart, downloads, table
from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.grid import default_rates, finished_points, grid_job
from servetwin.app.dashboard.jobs.job import Job, find_job, watch_job
from servetwin.app.dashboard.jobs.simulated_items import RATES, GridScenario
from servetwin.app.dashboard.policies import frontier, policy_grid
from servetwin.app.dashboard.scenario.sidebar import current_scenario, show_scenario
from servetwin.app.dashboard.scenario_words import grid_source, prefix_advice
from servetwin.app.dashboard.simulations import requests_of
from servetwin.app.dashboard.widgets import control, problems_shown, share_input
from servetwin.app.words import METRICS
from servetwin.sim.experiments import sweep

_JOB = "policies"
_CHART = "policies_frontier"
_Y = {"goodput": sweep.GOODPUT, "output throughput": sweep.THROUGHPUT}
_DEFINED = ("goodput_per_s", "output_throughput_tokens_per_s")
_EDITOR, _SHOWN, _KEPT = "policies_editor", "policies_shown", "policies_kept"


def page() -> None:
    """Draw the page."""
    st.title("Policies")
    st.caption(page_text("policies"))
    base = current_scenario()
    rows = _edited_table()
    left, middle, right = st.columns([3, 2, 2], vertical_alignment="bottom")
    rates = default_rates("policies", base)
    rates = control("policies_rates", rates, left, label=RATES)
    definition = f"{METRICS['slo_attainment'].definition}."
    share = share_input("policies_share", base, definition, middle)
    pressed = right.button("Run the grid", type="primary", key="policies_run")
    if grid_job(_JOB, base, lambda: policy_grid.policy_points(base, rows, rates), pressed=pressed):
        defined = zip(_Y, _DEFINED, strict=True)
        help_ = "; ".join(f"{name}: {METRICS[metric].definition}" for name, metric in defined)
        y = _Y[control("policies_y", width=280, help=help_)]
        watch_job(_JOB, lambda job: _draw(job, share, y))


def _edited_table() -> pd.DataFrame:
    """Draw the table; edits survive a visit to another page."""
    if _EDITOR not in st.session_state:
        st.session_state[_SHOWN] = st.session_state.get(_KEPT, policy_grid.DEFAULT_TABLE)
    help_ = page_text("policies.help")
    edited: pd.DataFrame = st.data_editor(
        st.session_state[_SHOWN], num_rows="dynamic", hide_index=True, width="stretch",
        key=_EDITOR, alt="The policies to compare: a name and settings in each row.",
        column_config={
            policy_grid.NAME: st.column_config.TextColumn("name", max_chars=40, width="small"),
            policy_grid.POLICIES: st.column_config.TextColumn(
                "policies and settings", max_chars=400, width="large", help=help_
            ),
        },
    )  # fmt: skip
    st.session_state[_KEPT] = edited
    return edited


def _say_what_is_unknown(job: "Job[GridScenario, Any]") -> None:
    """Say which policies have a prefix cache of which these requests tell nothing."""
    base, points = job.note
    files = {
        point[policy_grid.NAME]: item.file for point, item in zip(points, job.items, strict=True)
    }
    caching = [name for name, file in files.items() if file.settled().policies.prefix_cache]
    with problems_shown():
        if caching and (advice := prefix_advice(base.workload, requests_of(base))):
            st.info(f"{escaped(', '.join(caching))}: {advice}")


def _draw(job: "Job[GridScenario, Any]", share: float, y: str) -> None:
    base, points = job.note
    frame = finished_points(job, policy_grid.NAME)
    names = dict.fromkeys(point[policy_grid.NAME] for point in points)
    rates = sorted({point["rate"] for point in points})
    shares = frame.pivot_table("slo_attainment", policy_grid.NAME, "rate", dropna=False)
    shares = shares.reindex(index=list(names), columns=rates)
    title = METRICS["slo_attainment"].title
    figure = figures.heat_map(shares, "requests per second", title)
    chart(figure, "policies_heat_map", grid_source(base))
    _frontier(job, frame, share, y)
    if job.is_running:
        return
    _say_what_is_unknown(job)
    left, right = st.columns([3, 2])
    with left:
        st.subheader("Best at each rate")
        best = policy_grid.best_per_rate(frame, share)
        st.markdown("\n".join(f"- {escaped(line)}" for line in best))
    with right:
        st.subheader("Highest rate within the SLO")
        highest = policy_grid.highest_rates(frame, share)
        alt = "The highest rate of each policy within the SLO."
        st.dataframe(highest, hide_index=True, placeholder="none", key="policies_highest", alt=alt)
    downloads(frame, "policies")


def _frontier(job: "Job[GridScenario, Any]", frame: pd.DataFrame, share: float, y: str) -> None:
    """Draw throughput against the speed for a user, with a conclusion; a click loads a point."""
    base, points = job.note
    feasible = frame[frame[sweep.PROBLEM] == ""].rename(columns={policy_grid.NAME: "series"})
    if feasible.empty:
        return
    feasible["on_front"] = sweep.on_front(feasible, sweep.INTERACTIVITY, y)
    best = sweep.best_point(feasible, y, share)
    st.subheader("Throughput against the speed for a user")
    st.markdown(f"**{frontier.conclusion(feasible, y, share)}**")
    series = dict.fromkeys(point[policy_grid.NAME] for point in points)
    figure = figures.frontier(
        feasible, y, frontier.Y_TITLES[y], frontier.panels(list(series)),
        share=share, best=best, tpot_limit_s=base.slo.slo().tpot_s,
    )  # fmt: skip
    options = {} if job.is_running else {"on_select": _load, "selection_mode": "points"}
    chart(figure, _CHART if options else f"{_CHART}_so_far", grid_source(base), **options)
    st.caption(page_text("frontier.symbols", share=100 * share))
    if not job.is_running:
        levels = sweep.round_levels(feasible[sweep.INTERACTIVITY])
        at_levels = frontier.level_table(feasible, levels, y)
        digits = st.column_config.NumberColumn(format="%.4g")
        columns = dict.fromkeys(at_levels.select_dtypes("number").columns, digits)
        alt = "The best point at each speed for a user."
        table(at_levels, alt, key="policies_levels", column_config=columns)


def _load() -> None:
    """Show the scenario of the clicked point at the side."""
    job = find_job(_JOB)
    picked = st.session_state[_CHART]["selection"]["points"]
    if job is None or not picked or "customdata" not in picked[0]:
        return
    custom = picked[0]["customdata"]
    place = int(custom[0] if isinstance(custom, list) else custom)
    show_scenario(job.items[place].file)
