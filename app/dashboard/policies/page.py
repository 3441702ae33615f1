"""Policies: the SLO attainment of each policy at each rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import chart
from servetwin.app.dashboard.default_rates import default_rates
from servetwin.app.dashboard.downloads import downloads
from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.jobs.job import Job, find_job, start_job, watch_job
from servetwin.app.dashboard.jobs.scenario_grid import (
    AS_IN_THE_SCENARIO,
    AXES,
    GridScenario,
    points_frame,
    simulate_point,
)
from servetwin.app.dashboard.pictures.simulated_source import grid_source
from servetwin.app.dashboard.policies import policy_grid
from servetwin.app.dashboard.prefix_advice import prefix_advice
from servetwin.app.dashboard.scenario.sidebar import current_scenario
from servetwin.app.dashboard.scenario.uploads import given_trace, result_keys
from servetwin.app.dashboard.simulations import requests_of
from servetwin.app.dashboard.slo_share import WITHIN_SLO, share_input
from servetwin.app.dashboard.widgets import bound, problems_shown
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.words import METRICS
from servetwin.sim.experiments.sweep import PROBLEM

_JOB = "policies"
_EDITOR, _SHOWN, _KEPT = "policies_editor", "policies_shown", "policies_kept"
_HELP = (
    "Presets, labels and settings as for `replay compare`, joined by + or spaces: "
    "chunked+paged max_seqs=64 queue_order=sjf"
)


@dataclass(frozen=True, slots=True)
class _Grid:
    """The scenario, table and rates of a job, and its points."""

    base: ScenarioFile
    table: pd.DataFrame
    rates: str
    points: Sequence[Mapping[str, Any]]

    def is_of(self, base: ScenarioFile, table: pd.DataFrame, rates: str) -> bool:
        """Return whether the page shows the same scenario, table and rates now."""
        return (self.base, self.rates) == (base, rates) and self.table.equals(table)


def page() -> None:
    """Draw the page."""
    st.title("Policies")
    st.caption(
        "Share of requests within the SLO, for each policy at each rate, on the same requests. "
        "Settings that a row does not name are as in the scenario at the side."
    )
    base = current_scenario()
    table = _edited_table()
    left, middle, right = st.columns([3, 2, 2], vertical_alignment="bottom")
    help_ = "Values separated by commas."
    rates = left.text_input(
        AXES["rate"],
        default_rates("policies", base),
        **bound("policies_rates"),
        help=help_,
        placeholder=AS_IN_THE_SCENARIO,
    )
    with middle:
        defined = f"{METRICS['slo_attainment'].definition}."
        share = share_input("policies_share", WITHIN_SLO, base, defined)
    run = right.button("Run the grid", type="primary", key="policies_run")
    if run or find_job(_JOB) is None:
        _start(base, table, rates)
    job = find_job(_JOB)
    if job is None:
        return
    if not job.note.is_of(base, table, rates):
        st.info("Scenario, table or rates have changed since this grid was run. Run it again.")
    watch_job(_JOB, lambda job: _draw(job, share))


def _edited_table() -> pd.DataFrame:
    """Draw the table; edits survive a visit to another page."""
    if _EDITOR not in st.session_state:
        st.session_state[_SHOWN] = st.session_state.get(_KEPT, policy_grid.DEFAULT_TABLE)
    table: pd.DataFrame = st.data_editor(
        st.session_state[_SHOWN], num_rows="dynamic", hide_index=True, width="stretch",
        key=_EDITOR, alt="The policies to compare: a name and settings in each row.",
        column_config={
            policy_grid.NAME: st.column_config.TextColumn("name", max_chars=40, width="small"),
            policy_grid.POLICIES: st.column_config.TextColumn(
                "policies and settings", help=_HELP, max_chars=400, width="large"
            ),
        },
    )  # fmt: skip
    st.session_state[_KEPT] = table
    return table


def _start(base: ScenarioFile, table: pd.DataFrame, rates: str) -> None:
    with problems_shown():
        points, files = policy_grid.policy_points(base, table, rates)
        given = given_trace(base.workload.source)
        scenarios, keys = [GridScenario(file, given) for file in files], result_keys(files)
        start_job(_JOB, simulate_point, scenarios, _Grid(base, table, rates, points), keys)


def _say_what_is_unknown(job: "Job[GridScenario, Any]") -> None:
    """Say which policies have a prefix cache of which these requests tell nothing."""
    names = [point[policy_grid.NAME] for point in job.note.points]
    files = dict(zip(names, (item.file for item in job.items), strict=True))
    caching = [name for name, file in files.items() if file.settled().policies.prefix_cache]
    if not caching:
        return
    with problems_shown():
        base = job.note.base
        if advice := prefix_advice(base.workload, requests_of(base)):
            st.info(f"{escaped(', '.join(caching))}: {advice}")


def _draw(job: "Job[GridScenario, Any]", share: float) -> None:
    points = job.note.points
    frame = points_frame(points, job.results)
    problems = frame[frame[PROBLEM] != ""].drop_duplicates([policy_grid.NAME, PROBLEM])
    for _, row in problems.iterrows():
        st.error(f"{escaped(row[policy_grid.NAME])}: {escaped(row[PROBLEM])}")
    names = dict.fromkeys(point[policy_grid.NAME] for point in points)
    rates = sorted({point["rate"] for point in points})
    shares = frame.pivot_table("slo_attainment", policy_grid.NAME, "rate", dropna=False)
    shares = shares.reindex(index=list(names), columns=rates)
    title = METRICS["slo_attainment"].title
    figure = figures.heat_map(shares, "requests per second", title)
    chart(figure, "policies_heat_map", grid_source(job.note.base))
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
        st.dataframe(
            highest, hide_index=True, placeholder="none", key="policies_highest",
            alt="The highest rate of each policy within the SLO.",
        )  # fmt: skip
    downloads(frame, "policies")
