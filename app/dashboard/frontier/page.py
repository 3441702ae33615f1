"""Frontier: a grid of scenarios; throughput of a replica against the speed for a user."""

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
from servetwin.app.dashboard.frontier import frontier_grid
from servetwin.app.dashboard.jobs.job import Job, find_job, start_job, watch_job
from servetwin.app.dashboard.jobs.scenario_grid import (
    AS_IN_THE_SCENARIO,
    AXES,
    GridScenario,
    points_frame,
    simulate_point,
    with_values,
)
from servetwin.app.dashboard.pictures.simulated_source import grid_source
from servetwin.app.dashboard.scenario.sidebar import current_scenario, show_scenario
from servetwin.app.dashboard.scenario.uploads import given_trace, result_keys
from servetwin.app.dashboard.slo_share import WITHIN_SLO, share_input
from servetwin.app.dashboard.widgets import bound, problems_shown
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.sim.experiments import sweep as frontier
from servetwin.sim.experiments.sweep import PROBLEM

_JOB = "frontier"
_CHART = "frontier_chart"
_SEQUENCES = "16, 64, 256"
_Y = {"goodput": frontier.GOODPUT, "output throughput": frontier.THROUGHPUT}


@dataclass(frozen=True, slots=True)
class _Grid:
    """The scenario that a job varies, and its points."""

    base: ScenarioFile
    points: Sequence[Mapping[str, Any]]

    def is_of(self, scenario: ScenarioFile) -> bool:
        """Return whether it varies this scenario, or one that a click on a point has loaded."""
        values = frontier_grid.values_of(self.points[0])
        return with_values(self.base, values) == with_values(scenario, values)


def page() -> None:
    """Draw the page."""
    st.title("Frontier")
    st.caption(
        "Throughput of one replica against the speed for a user. Every point is a simulation of "
        "the scenario at the side with the values below. Click a point to load its scenario."
    )
    base = current_scenario()
    with st.form("frontier_form"):
        texts = _axes(base)
        run = st.form_submit_button("Run the grid", type="primary")
    if run or find_job(_JOB) is None:
        _start(base, texts)
    job = find_job(_JOB)
    if job is None:
        return
    if not job.note.is_of(base):
        st.info("The scenario has changed since this grid was run. Run it again to update it.")
    share, y = _shown_choices(base)
    watch_job(_JOB, lambda job: _draw(job, share, y))


def _axes(base: ScenarioFile) -> dict[str, str]:
    defaults = {"rate": default_rates("frontier", base), "max_seqs": _SEQUENCES}
    places = [st.container(), *st.columns(len(AXES) - 1, vertical_alignment="bottom")]
    return {
        axis: place.text_input(
            label, defaults.get(axis, ""), **bound(f"frontier_{axis}"),
            placeholder=AS_IN_THE_SCENARIO, help="Values separated by commas.",
        )
        for place, (axis, label) in zip(places, AXES.items(), strict=True)
    }  # fmt: skip


def _start(base: ScenarioFile, texts: dict[str, str]) -> None:
    with problems_shown():
        points = frontier_grid.frontier_points(texts)
        given = given_trace(base.workload.source)
        files = [with_values(base, frontier_grid.values_of(point)) for point in points]
        scenarios, keys = [GridScenario(file, given) for file in files], result_keys(files)
        start_job(_JOB, simulate_point, scenarios, _Grid(base, points), keys)


def _shown_choices(base: ScenarioFile) -> tuple[float, str]:
    with st.container(horizontal=True, gap="large"):
        name = st.segmented_control(
            "Vertical axis, per replica", list(_Y), default="goodput", required=True,
            help="; ".join(f"{name}: {frontier_grid.Y_DEFINITIONS[y]}" for name, y in _Y.items()),
            width=280, **bound("frontier_y"),
        )  # fmt: skip
        with st.container(width=300):
            share = share_input(
                "frontier_share", WITHIN_SLO, base,
                "A point below this share is drawn as an open symbol.",
            )  # fmt: skip
    return share, _Y[name]


def _draw(job: "Job[GridScenario, Any]", share: float, y: str) -> None:
    grid: _Grid = job.note
    frame = points_frame(grid.points, job.results)
    problems = frame.loc[frame[PROBLEM] != "", PROBLEM]
    for problem in dict.fromkeys(problems):
        st.error(escaped(problem))
    found = frame[frame[PROBLEM] == ""].copy()
    if found.empty:
        return
    found["on_front"] = frontier.on_front(found, frontier.INTERACTIVITY, y)
    best = frontier.best_point(found, y, share)
    st.markdown(f"**{frontier_grid.conclusion(found, y, share)}**")
    figure = figures.frontier(
        found, y, frontier_grid.Y_TITLES[y], frontier_grid.series_groups(grid.points),
        share=share, best=best, tpot_limit_s=grid.base.slo.slo().tpot_s,
    )  # fmt: skip
    options = {} if job.is_running else {"on_select": _load, "selection_mode": "points"}
    source = grid_source(grid.base)
    chart(figure, _CHART if options else f"{_CHART}_so_far", source, **options)
    st.caption(
        f"Filled symbols: at least {100 * share:g} % of the requests are within the SLO; open "
        "symbols: fewer. Along a line the rate grows. The broad grey line is the Pareto front: no "
        "other point is better in both."
    )
    if not job.is_running:
        _levels(found, y)
        downloads(frame, "frontier")


def _levels(found: pd.DataFrame, y: str) -> None:
    st.subheader("At a given speed for a user")
    levels = frontier.round_levels(found[frontier.INTERACTIVITY])
    table = frontier_grid.level_table(found, levels, y)
    digits = st.column_config.NumberColumn(format="%.4g")
    numbers = table.select_dtypes("number").columns
    st.dataframe(
        table, hide_index=True, key="frontier_levels", alt="The best point at each speed.",
        column_config=dict.fromkeys(numbers, digits),
    )  # fmt: skip


def _load() -> None:
    """Show the scenario of the clicked point at the side."""
    job = find_job(_JOB)
    picked = st.session_state[_CHART]["selection"]["points"]
    if job is None or not picked or "customdata" not in picked[0]:
        return
    custom = picked[0]["customdata"]
    place = int(custom[0] if isinstance(custom, list) else custom)
    show_scenario(job.items[place].file)
