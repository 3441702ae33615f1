"""The kept runs on the page Measure: save, open, compare, download and delete run folders."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import streamlit as st

from servetwin.app.dashboard.charts import charts_by_two, downloads, report_table, table
from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.kept_runs.folder import MOST_ZIP_BYTES, delete, zip_problem, zipped
from servetwin.app.dashboard.kept_runs.opened_runs import opened
from servetwin.app.dashboard.kept_runs.received_run import receive_run
from servetwin.app.dashboard.kept_runs.saved_scenario import rebuilt, save_run
from servetwin.app.dashboard.measure.listing import ListedFolder, listed_runs, runs_table
from servetwin.app.dashboard.pages import PAGES, drawing
from servetwin.app.dashboard.scenario.allowed_choices import runs_folder
from servetwin.app.dashboard.scenario.sidebar import show_scenario
from servetwin.app.dashboard.scenario.uploads import uploads
from servetwin.app.dashboard.simulations import simulate
from servetwin.app.dashboard.trust.trials import COMMAND, ERROR_COLUMNS, bundled
from servetwin.app.dashboard.widgets import control, problems_shown, uploader
from servetwin.app.figures.canvas import looks
from servetwin.app.reports.html.facts import doubts, facts
from servetwin.app.reports.html.page import made_when, render_html
from servetwin.app.reports.html.run_charts import run_charts
from servetwin.app.reports.html.tables import comparison_table, latency_table
from servetwin.app.reports.report_folders import NamedRun, Trial
from servetwin.app.reports.run_words import source_line
from servetwin.app.reports.tables import POINTS
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.loadtest.report.load_notes import prompt_cache_warning
from servetwin.workloads.errors import ServetwinError

# The control that opens a run.
OPEN = "measure_open"
_MESSAGE, _RECEIVED = "measure_message", "measure_received"
_MOST_COMPARED = 8
_FOUR_DIGITS = st.column_config.NumberColumn(format="%.4g")
_MOST_ZIP_MB = MOST_ZIP_BYTES // 1_000_000


def draw_kept_runs(file: ScenarioFile) -> None:
    """Draw the kept runs and the one that is open, or an example where there are none."""
    root = runs_folder()
    st.subheader("Kept runs")
    _show_message()
    folders = listed_runs(root)
    runs = [run for run in folders if not run.problem]
    names = [run.name for run in folders]
    empty = "choose one" if names else "none yet"
    name = control(OPEN, options=names, index=None, placeholder=empty)
    with st.expander("Save, receive, compare"):
        _saving(root, file)
        _receiving(root)
        _comparing(root, [run.name for run in runs], file)
    _listing(root, runs, [run.problem for run in folders if run.problem])
    if name:
        _opened(root, name, file)
    elif not folders:
        _example(file)


def _show_message() -> None:
    """Show what the last button did."""
    if message := st.session_state.pop(_MESSAGE, None):
        kind, text = message
        (st.error if kind == "error" else st.success)(escaped(text))


def _act(work: Callable[[], object], done: str, opened: str | None) -> None:
    """Do what a button says; keep what the next drawing says, and which run it opens."""
    message = "success", done
    try:
        work()
        st.session_state[OPEN] = opened
    except ServetwinError as error:
        message = "error", str(error)
    st.session_state[_MESSAGE] = message


def _saving(root: Path, file: ScenarioFile) -> None:
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    free = _free_name(root, file)
    name = left.text_input(
        "Save the scenario at the side as", free, key="measure_name", max_chars=80
    )
    right.button(
        "Simulate and save", on_click=_act,
        args=(lambda: save_run(root, name, simulate(file)), f"saved as {name}", name),
        help="Writes the same folder as `servetwin replay --out`.",
    )  # fmt: skip


def _free_name(root: Path, file: ScenarioFile) -> str:
    """Return the server's name with the first number that is not taken."""
    server = Path(file.deployment.model or "+".join(file.deployment.profile)).stem
    return next(name for n in count(1) if not (root / (name := f"{server}-{n}")).exists())


def _receiving(root: Path) -> None:
    uploader(
        "Run folder of a colleague, as zip", _RECEIVED, partial(_receive, root), type="zip",
        max_upload_size=_MOST_ZIP_MB, help=page_text("runs.zip"),
    )  # fmt: skip
    st.caption(f"Not zipped: copy the folder into {escaped(root.name)}, and it is listed here.")


def _receive(root: Path, file_name: str, content: bytes) -> None:
    name = receive_run(root, file_name, content)
    st.session_state[_MESSAGE] = "success", f"kept as {name}"
    st.session_state[OPEN] = name


def _listing(root: Path, runs: list[ListedFolder], problems: list[str]) -> None:
    """Draw the runs, and which folders are none."""
    if runs:
        frame = runs_table(runs)
        digits = dict.fromkeys(frame.columns[2:5], _FOUR_DIGITS)
        table(frame, "The kept runs.", column_config=digits)
        downloads(frame, "runs")
    else:
        st.info(page_text("runs.none", folder=root.name))
    if problems:
        with st.expander(f"Folders that are no runs: {len(problems)}"):
            st.text("\n".join(problems))


def _comparing(root: Path, names: list[str], file: ScenarioFile) -> None:
    if len(names) < 2:
        return
    chosen = st.multiselect(
        "Compare in one HTML file", names, key="measure_compared", max_selections=_MOST_COMPARED,
        help="A prediction and load tests of the same requests are compared.",
    )  # fmt: skip
    if chosen:
        _report(root, tuple(chosen), file, "comparison")


def _report(root: Path, names: tuple[str, ...], file: ScenarioFile, key: str) -> None:
    """Offer the report of ``servetwin report``, with the SLO of the scenario at the side."""
    with problems_shown():
        runs, trials = opened(root, names)
        st.download_button(
            "Report as HTML",
            lambda: render_html(runs, trials, file.slo.slo()).encode("utf-8", "replace"),
            f"{key}.html", "text/html", on_click="ignore", key=f"measure_report_{key}",
            help="One file that opens anywhere, without a network.",
        )  # fmt: skip


def _opened(root: Path, name: str, file: ScenarioFile) -> None:
    try:
        runs, trials = opened(root, (name,))
    except ServetwinError as error:
        st.error(escaped(error))
        _deleting(root, name)
        return
    named = next((run for run in runs if run.run.kind == "loadtest"), runs[0])
    if len(runs) > 1:
        names = [run.name for run in runs]
        label = st.selectbox(
            f"Run of {name}", names, names.index(named.name), key=f"measure_in_{name}"
        )
        named = next(run for run in runs if run.name == label)
    st.subheader(escaped(named.name))
    with st.container(horizontal=True):
        _explaining(name, named)
        _report(root, (name,), file, name)
        _as_zip(root, name)
        _deleting(root, name)
    _as_scenario(named, file)
    _drawn(named, file, trials)


def _example(file: ScenarioFile) -> None:
    """Draw a load test that comes with Servetwin, as a kept run would be drawn."""
    runs, trials = bundled()
    st.subheader("Example: a load test of the bundled engine")
    st.caption(f"Yours will be shown like this one, which `{COMMAND}` made on two shared vCPUs.")
    _drawn(next(one for one in runs if one.run.kind == "loadtest"), file, trials)


def _explaining(name: str, named: NamedRun) -> None:
    """Lead to the page that explains each request of the run."""
    folder = Path(name, *Path(named.name).parts[1:]).as_posix()
    st.page_link(
        st.Page(drawing("why"), title=PAGES["why"], url_path="why"),
        label="Why was a request slow?", icon=":material/search:",
        query_params={"why_run": folder},
    )  # fmt: skip


def _as_zip(root: Path, name: str) -> None:
    if problem := zip_problem(root, name):
        st.caption(problem)
        return
    st.download_button(
        "Folder as zip", lambda: zipped(root, name), f"{name}.zip", "application/zip",
        on_click="ignore", key="measure_zip",
    )  # fmt: skip


def _deleting(root: Path, name: str) -> None:
    with st.popover("Delete ..."):
        st.text(f"Delete {name} and all its files? This cannot be undone.")
        work = partial(delete, root, name), f"{name} is deleted", None
        st.button("Delete for good", type="primary", on_click=_act, args=work)


def _as_scenario(named: NamedRun, file: ScenarioFile) -> None:
    try:
        scenario, note = rebuilt(named.run.scenario, file, uploads())
    except ServetwinError as error:
        st.caption(f"Cannot be opened as a scenario: {escaped(error)}")
        return
    done = f"the scenario at the side is that of {named.name}"
    work = partial(show_scenario, scenario), done, st.session_state.get(OPEN)
    st.button("Open as scenario", on_click=_act, args=work, help=note or None)


def _drawn(named: NamedRun, file: ScenarioFile, trials: Sequence[Trial]) -> None:
    """Draw a run, beside the prediction that it judges."""
    shares = named.run.extra.get("prompt_cache")
    cached = prompt_cache_warning(shares) if shares else None
    for line in filter(None, [*doubts(named.run), cached]):
        st.warning(escaped(line))
    lines = (line for line in map(str, facts(named.run)) if line != cached)
    st.text("\n".join([*lines, made_when([named])]))
    shown = [named]
    for trial in trials:
        if named in trial.measured:
            alt = "Errors of the prediction, with verdicts."
            report_table(comparison_table(trial.comparison), alt, ERROR_COLUMNS)
            shown = [trial.predicted, named]
    shown = [replace(one, name=one.name.rpartition("/")[2]) for one in shown]
    charts = enumerate(run_charts(shown, looks([one.name for one in shown]), file.slo.slo()))
    first, second, *more = ((f"measure_chart_{n}", figure) for n, (*_, figure) in charts)
    source = source_line([one.run for one in shown])
    charts_by_two(dict([first, second]), source)
    with st.expander("All charts"):
        charts_by_two(dict(more), source)
    latencies = latency_table(shown[-1:], looks([shown[-1].name]))
    report_table(latencies, "Latencies by part of the run.", ("metric", "part", "count", *POINTS))
    downloads(named.run.requests.drop(columns="chunk_s", errors="ignore"), "run_requests")
