"""Timeline: requests, batches, queue and memory on one axis; one request explained."""

from collections.abc import Sequence
from functools import partial
from math import ceil, floor

import pandas as pd
import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import chart, downloads
from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.kept_runs.folder import kept_runs, last_change_s
from servetwin.app.dashboard.scenario.allowed_choices import runs_folder
from servetwin.app.dashboard.scenario.sidebar import current_scenario
from servetwin.app.dashboard.simulations import SimulatedScenario, simulate_or_stop
from servetwin.app.dashboard.timeline import timeline_run as visible
from servetwin.app.dashboard.timeline.request_explanation import draw_explanation, slowest_table
from servetwin.app.dashboard.timeline.timeline_run import TimelineRun, from_folder, from_simulation
from servetwin.app.dashboard.widgets import control, problems_shown
from servetwin.app.figures.timeline import MOST_BATCHES
from servetwin.app.reports.run_words import source_line
from servetwin.sim.explain.explain import Explanation
from servetwin.workloads.errors import ServetwinError

_THIS = "the scenario at the side"
_WINDOW, _SLOWEST = "window", "slowest"
_SLOWEST_LISTED = 10


def page() -> None:
    """Draw the page."""
    st.title("Timeline")
    left, right = st.columns(2)
    with left:
        shown_run = _run()
    with right:
        row = _requested(shown_run)
    choice = _choice(shown_run, row)
    _chart(shown_run, choice, row)
    slowest = shown_run.explainer.slowest(_SLOWEST_LISTED)
    if row is not None:
        st.subheader(f"Request {escaped(_name(shown_run, row))}")
        _explain(shown_run, row)
    elif slowest and not st.session_state.get("timeline_request"):
        _example(shown_run, slowest[0].request_id)
    _slowest(slowest)
    _files(shown_run)


def _run() -> TimelineRun:
    """Return the chosen run; end the page where it cannot be read."""
    folders = kept_runs(runs_folder())
    name = control("timeline_run", options=[_THIS, *folders], on_change=_forget_window)
    if name not in folders:
        outcome = simulate_or_stop(current_scenario())
        return _of_outcome(outcome.file.model_dump_json() + outcome.digest, outcome)
    folder = runs_folder() / name
    try:
        return _of_folder(name, last_change_s(folder))
    except (ServetwinError, OSError) as error:
        st.error(escaped(str(error).replace(str(folder), name)))
        st.stop()


def _forget_window() -> None:
    """Forget the window: another run has another busiest moment."""
    st.session_state.pop("timeline_window", None)


@st.cache_resource(max_entries=16, show_spinner=False)
def _of_outcome(key: str, _outcome: SimulatedScenario) -> TimelineRun:
    return from_simulation(_outcome)


@st.cache_resource(max_entries=16, show_spinner="Reading the run ...")
def _of_folder(name: str, changed: float) -> TimelineRun:
    return from_folder(runs_folder() / name)


def _requested(shown_run: TimelineRun) -> int | None:
    """Return the row of the request to explain."""
    name = control("timeline_request")
    if not name:
        return None
    with problems_shown():
        return shown_run.explainer.row_of(name)
    return None


def _choice(shown_run: TimelineRun, row: int | None) -> visible.VisibleRequests:
    left, right = st.columns([1, 2])
    show = control("timeline_show", place=left, options=[_WINDOW, _SLOWEST])
    with right:
        if show == _SLOWEST:
            count = st.slider("How many", 5, visible.MOST_LINES, 20, key="timeline_slowest")
            return visible.slowest(shown_run, count)
        return visible.in_window(shown_run, _window(shown_run, row), row)


def _window(shown_run: TimelineRun, row: int | None) -> tuple[float, float]:
    low, high = floor(100 * shown_run.start_s) / 100, ceil(100 * shown_run.end_s) / 100
    begin = (
        visible.busiest_window(shown_run) if row is None else visible.window_around(shown_run, row)
    )
    start_s, end_s = st.session_state.get("timeline_window") or begin
    start_s, end_s = max(low, start_s), min(high, end_s)
    if start_s >= end_s:
        start_s, end_s = begin
    st.session_state["timeline_window"] = round(start_s, 2), round(end_s, 2)
    shown = control("timeline_window", min_value=low, max_value=high, step=0.01)
    return shown[0], shown[1]


def _chart(shown_run: TimelineRun, choice: visible.VisibleRequests, row: int | None) -> None:
    chosen = None if row is None else _name(shown_run, row)
    shown = visible.timeline_data(shown_run, choice)
    chart(
        figures.timeline(shown, chosen), "timeline_chart", source_line([shown_run.run]),
        on_select=_take_click, selection_mode="points",
    )  # fmt: skip
    joined = page_text("timeline.joined") if len(shown.steps) > MOST_BATCHES else ""
    st.caption(page_text("timeline.chart", description=choice.description, joined=joined))


def _take_click() -> None:
    points = st.session_state["timeline_chart"]["selection"]["points"]
    clicked = [point.get("customdata") for point in points]
    names = [name[0] if isinstance(name, list) else name for name in clicked]
    if names := list(filter(None, names)):
        st.session_state["timeline_request"] = names[0]


def _example(shown_run: TimelineRun, name: str) -> None:
    st.subheader(f"Example: request {escaped(name)}")
    st.caption("The slowest of this run. For another one give its id above, or click on its bar.")
    _explain(shown_run, shown_run.explainer.row_of(name))


def _explain(shown_run: TimelineRun, row: int) -> None:
    name = _name(shown_run, row)
    zoom = partial(_zoom, visible.window_around(shown_run, row))
    explainer, source = shown_run.explainer, source_line([shown_run.run])
    draw_explanation(explainer.explain(name), explainer.waited_behind(name), zoom, source)


def _name(shown_run: TimelineRun, row: int) -> str:
    return str(shown_run.run.requests["request_id"].iloc[row])


def _slowest(explanations: Sequence[Explanation]) -> None:
    table = slowest_table(explanations)
    if table.empty:
        return
    st.subheader("The slowest requests")
    st.dataframe(
        table, hide_index=True, key="timeline_slowest_table", selection_mode="single-row",
        on_select=lambda: _take_row(table), alt="The slowest requests, and what delayed them.",
    )  # fmt: skip


def _take_row(table: pd.DataFrame) -> None:
    rows = st.session_state["timeline_slowest_table"]["selection"]["rows"]
    if rows:
        st.session_state["timeline_request"] = str(table["request"].iloc[rows[0]])


def _zoom(window_s: tuple[float, float]) -> None:
    st.session_state.update({"timeline_window": window_s, "timeline_show": _WINDOW})


def _files(shown_run: TimelineRun) -> None:
    frames = {"requests": shown_run.run.requests, "steps": shown_run.run.steps}
    for column, (name, frame) in zip(st.columns(2), frames.items(), strict=True):
        with column:
            st.caption(f"All {name} of the run")
            downloads(frame, f"timeline_{name}")
