"""Why: one request explained, and requests, batches, queue and memory on one axis."""

from collections.abc import Sequence
from functools import partial
from math import ceil, floor

import pandas as pd
import streamlit as st

from servetwin.app.dashboard.charts import chart, downloads
from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.kept_runs.folder import kept_runs, last_change_s
from servetwin.app.dashboard.scenario.allowed_choices import runs_folder
from servetwin.app.dashboard.scenario.sidebar import current_scenario
from servetwin.app.dashboard.simulations import SimulatedScenario, simulate_or_stop
from servetwin.app.dashboard.why import shown_run as visible
from servetwin.app.dashboard.why.request_explanation import draw_explanation, slowest_table
from servetwin.app.dashboard.why.shown_run import ShownRun, from_folder, from_simulation
from servetwin.app.dashboard.widgets import control, problems_shown
from servetwin.app.figures import timeline
from servetwin.app.reports.run_words import source_line
from servetwin.sim.explain.explain import Explanation
from servetwin.sim.records.tasks import task_of
from servetwin.workloads.errors import ServetwinError

_THIS = "the scenario at the side"
_SLOWEST_LISTED = 10


def page() -> None:
    """Draw the page: the request that is asked for, or the slowest, then the timeline."""
    left, right = st.columns(2)
    with left:
        run = _run()
    with right:
        row = _requested(run)
    slowest = run.explainer.slowest(_SLOWEST_LISTED)
    if row is None and slowest and not st.session_state.get("why_request"):
        st.subheader(f"Example: request {escaped(slowest[0].request_id)}")
        st.caption(page_text("why.example"))
        row = run.explainer.row_of(slowest[0].request_id)
    elif row is not None:
        st.subheader(f"Request {escaped(_name(run, row))}")
    if row is not None:
        _explain(run, row)
    _chart(run, row)
    if (task := task_of(run.run.requests, row)) is not None:
        st.subheader("Its task")
        figure = timeline.swim_lanes(task, None if row is None else _name(run, row))
        chart(
            figure, "why_task", source_line([run.run]), on_select=partial(_take_click, "why_task"),
            selection_mode="points",
        )  # fmt: skip
        st.caption(page_text("why.task", description=figure.alt))
    _slowest(slowest)
    downloads(run.run.requests, "requests")
    downloads(run.run.steps, "steps")


def _run() -> ShownRun:
    """Return the chosen run; end the page where it cannot be read."""
    folders = kept_runs(runs_folder())
    forget = partial(st.session_state.pop, "why_window", None)  # another run, another moment
    name = control("why_run", options=[_THIS, *folders], on_change=forget)
    if name not in folders:
        outcome = simulate_or_stop(current_scenario())
        return _of_outcome(outcome.file.model_dump_json() + outcome.digest, outcome)
    folder = runs_folder() / name
    try:
        return _of_folder(name, last_change_s(folder))
    except (ServetwinError, OSError) as error:
        st.error(escaped(str(error).replace(str(folder), name)))
        st.stop()


@st.cache_resource(max_entries=16, show_spinner=False)
def _of_outcome(key: str, _outcome: SimulatedScenario) -> ShownRun:
    return from_simulation(_outcome)


@st.cache_resource(max_entries=16, show_spinner="Reading the run ...")
def _of_folder(name: str, changed: float) -> ShownRun:
    return from_folder(runs_folder() / name)


def _requested(run: ShownRun) -> int | None:
    """Return the row of the request to explain."""
    name = control("why_request")
    if not name:
        return None
    with problems_shown():
        return run.explainer.row_of(name)
    return None


def _window(run: ShownRun, row: int | None) -> tuple[float, float]:
    low, high = floor(100 * run.start_s) / 100, ceil(100 * run.end_s) / 100
    begin = visible.busiest_window(run) if row is None else visible.window_around(run, row)
    start_s, end_s = st.session_state.get("why_window") or begin
    start_s, end_s = max(low, start_s), min(high, end_s)
    if start_s >= end_s:
        start_s, end_s = begin
    st.session_state["why_window"] = round(start_s, 2), round(end_s, 2)
    shown = control("why_window", min_value=low, max_value=high, step=0.01)
    return shown[0], shown[1]


def _chart(run: ShownRun, row: int | None) -> None:
    choice = visible.in_window(run, _window(run, row), row)
    shown = visible.timeline_data(run, choice)
    figure = timeline.timeline(shown, None if row is None else _name(run, row))
    chart(
        figure, "why_timeline", source_line([run.run]),
        on_select=partial(_take_click, "why_timeline"), selection_mode="points",
    )  # fmt: skip
    joined = page_text("why.joined") if len(shown.steps) > timeline.MOST_BATCHES else ""
    st.caption(page_text("why.chart", description=choice.description, joined=joined))


def _take_click(key: str) -> None:
    points = st.session_state[key]["selection"]["points"]
    clicked = [point.get("customdata") for point in points]
    names = [name[0] if isinstance(name, list) else name for name in clicked]
    if names := list(filter(None, names)):
        st.session_state["why_request"] = names[0]


def _explain(run: ShownRun, row: int) -> None:
    name = _name(run, row)
    zoom = partial(st.session_state.update, why_window=visible.window_around(run, row))
    explainer, source = run.explainer, source_line([run.run])
    draw_explanation(explainer.explain(name), explainer.waited_behind(name), zoom, source)


def _name(run: ShownRun, row: int) -> str:
    return str(run.run.requests["request_id"].iloc[row])


def _slowest(explanations: Sequence[Explanation]) -> None:
    table = slowest_table(explanations)
    if table.empty:
        return
    st.subheader("The slowest requests")
    tenths = st.column_config.NumberColumn(format="%.1f")
    st.dataframe(
        table, hide_index=True, key="why_slowest_table", selection_mode="single-row",
        on_select=lambda: _take_row(table), alt="The slowest requests, and what delayed them.",
        column_config=dict.fromkeys(table.columns[1:4], tenths),
    )  # fmt: skip


def _take_row(table: pd.DataFrame) -> None:
    rows = st.session_state["why_slowest_table"]["selection"]["rows"]
    if rows:
        st.session_state["why_request"] = str(table["request"].iloc[rows[0]])
