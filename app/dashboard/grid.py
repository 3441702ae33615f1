"""A grid of scenarios on a page: the job of its points, and the rates that it begins with."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pandas as pd
import streamlit as st

from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.jobs.job import Job, find_job, start_job
from servetwin.app.dashboard.jobs.priority_lock import Rank
from servetwin.app.dashboard.jobs.simulated_items import GridScenario, points_frame, simulate_point
from servetwin.app.dashboard.scenario.controls import CONTROLS
from servetwin.app.dashboard.scenario.uploads import given, packed, result_keys
from servetwin.app.dashboard.simulations import TURNS
from servetwin.app.dashboard.widgets import end_if_stale, problems_shown
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.sim.experiments.capacity import admitting_all, all_at_once, completions_per_s
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.sweep import PROBLEM
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import limit

_SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0)
_ELSE_PER_S = 40.0
"""Where the saturation cannot be found."""
_REQUESTS = 1000

Points = Sequence[Mapping[str, Any]]


def grid_job(
    name: str,
    base: ScenarioFile,
    make: Callable[[], tuple[Points, list[ScenarioFile]]],
    *,
    pressed: bool,
) -> "Job[GridScenario, Any] | None":
    """Return the job of a grid, begun where there is none yet or the reader ``pressed`` its button.

    ``make`` returns the points and their scenarios; where it has others by now, the page says so.
    The note of the job are the scenario that is varied and the points.
    """
    job = find_job(name)
    if pressed or job is None:
        with problems_shown():
            points, files = make()
            trace = packed(base.workload.source)
            scenarios = [GridScenario(file, trace) for file in files]
            return start_job(name, simulate_point, scenarios, (base, points), result_keys(files))
        return job
    made = None
    with suppress(ServetwinError):
        made = make()
    if made != (job.note[1], [item.file for item in job.items]):
        st.info(page_text("grid.changed"))
    return job


def finished_points(job: "Job[GridScenario, Any]", name: str | None = None) -> pd.DataFrame:
    """Return the points that have ended, and show their problems, each once by ``name``."""
    frame = points_frame(job.note[1], job.results)
    columns = [*([name] if name else []), PROBLEM]
    problems = frame.loc[frame[PROBLEM] != "", columns].drop_duplicates()
    for row in problems.itertuples(index=False):
        st.error(": ".join(map(escaped, row)))
    return frame


def default_rates(page: str, base: ScenarioFile) -> str:
    """Return the rates for the scenario with which a session first opens the ``page``: up to that
    at which its servers are saturated."""
    key = f"{page}_default_rates"
    if key not in st.session_state:
        upload = given(base.workload.source)
        st.session_state[key] = rates_up_to(_saturation_per_s(base.model_dump_json(), *upload))
    rates: str = st.session_state[key]
    return rates


def rates_up_to(saturation_per_s: float) -> str:
    """Return shares of a rate, to two digits, as far as the control of rates takes them."""
    control = CONTROLS["rate"]
    rates = (float(f"{share * saturation_per_s:.2g}") for share in _SHARES)
    return ", ".join(
        dict.fromkeys(f"{min(max(rate, control.low), control.high):g}" for rate in rates)
    )


@st.cache_resource(max_entries=64, show_spinner=False)
def _saturation_per_s(text: str, digest: str, _trace: Trace | None) -> float:
    file = ScenarioFile.model_validate_json(text)
    with TURNS.turn(Rank.FIRST_ANSWER, end_if_stale) as turn:
        try:
            uploaded = {file.workload.source: _trace} if _trace else None
            trace = all_at_once(limit(file.workload.trace(file.seed, uploaded), _REQUESTS))
            scenario = admitting_all(file.build(trace))
            run = run_once(trace, scenario, seed=file.seed, on_arrival=lambda _: turn.give_way())
            return completions_per_s(run, trace.source)
        except (ServetwinError, ArithmeticError):  # what cannot be, the page says by itself
            return _ELSE_PER_S
