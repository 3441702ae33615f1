"""A server fitted to the measured times of an uploaded table, as ``calibrate --recorded`` does."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

import streamlit as st

from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.jobs.job import Job, job_of, watch_job
from servetwin.app.dashboard.scenario.uploads import unpacked_file, uploads
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.loadtest.recorded.reading import read_mapped
from servetwin.loadtest.recorded.recorded_run import as_recorded_run
from servetwin.workloads.tables.mapping import MEASURED, parse_mapping, quantity_of

_JOB = "fitted_server"


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """A table with measured times, and the scenario whose policies its server is taken to have."""

    name: str
    content: bytes
    columns: str
    scenario: ScenarioFile


@dataclass(frozen=True, slots=True)
class FittedServer:
    """The profile as JSON, to how many requests it was fitted, and the errors of the means."""

    profile: str
    requests: int
    errors: Mapping[str, float]


def fit_server(table: MeasuredTable) -> FittedServer:
    """Fit step times to a table. Raises ``ServetwinError`` where it says too little."""
    from servetwin.app.calibration.recorded import calibrate_recorded

    with unpacked_file(table.name, table.content) as path:
        recorded = as_recorded_run(read_mapped(path, parse_mapping(table.columns)), table.name)
    policies = table.scenario.build(recorded.trace).policies
    calibration = calibrate_recorded(recorded, policies, seed=table.scenario.seed)
    profile = calibration.profile(
        PurePath(table.name).stem, recorded, table.scenario.deployment.model
    )
    text = profile.model_dump_json(by_alias=True, indent=1)
    return FittedServer(text, calibration.fitted, calibration.whole)


def offer_fit(source: str, scenario: ScenarioFile | None) -> None:
    """Draw a button that fits a server to an upload with measured times, and what was fitted."""
    upload = uploads().get(source)
    if upload is None or upload.table is None or scenario is None:
        return
    columns = upload.columns or ""
    if not any(quantity_of(key) in MEASURED for key in parse_mapping(columns)):
        return
    item = MeasuredTable(upload.table.name, upload.table.content, columns, scenario)
    st.button(
        "Fit a server to its measured times", on_click=_begin, args=(item,),
        help=page_text("scenario.fit"), width="stretch",
    )  # fmt: skip
    watch_job(_JOB, _draw)


def _begin(table: MeasuredTable) -> None:
    job_of(_JOB, object(), lambda: Job(fit_server, [table], work="search"))


def _draw(job: "Job[MeasuredTable, FittedServer]") -> None:
    fitted = job.results.get(0)
    if fitted is None:
        return
    file = f"{PurePath(job.items[0].name).stem}.json"
    errors = ", ".join(
        f"{name[:-2].upper()} {100 * error:+.1f} %" for name, error in fitted.errors.items()
    )
    st.caption(escaped(f"Fitted to {fitted.requests:,} requests; error of the means: {errors}."))
    st.download_button(
        "Download the profile", fitted.profile, file, "application/json", on_click="ignore",
        width="stretch",
    )  # fmt: skip
    st.caption(f"`servetwin dashboard --profile {file}` offers it here as a server.")
