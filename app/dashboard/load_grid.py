"""Servers at several loads, up to more than they serve: the job that simulates them, its points,
and up to which load the SLO holds."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import pandas as pd
import streamlit as st

from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.jobs.job import Job, job_of
from servetwin.app.dashboard.jobs.priority_lock import Rank
from servetwin.app.dashboard.jobs.simulated_items import (
    GridScenario,
    points_frame,
    simulate_point,
    with_rate,
)
from servetwin.app.dashboard.scenario.controls import CONTROLS
from servetwin.app.dashboard.scenario.uploads import given, packed, result_keys
from servetwin.app.dashboard.simulations import TURNS
from servetwin.app.dashboard.widgets import end_if_stale
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.words import short
from servetwin.sim.experiments.capacity import admitting_all, all_at_once, completions_per_s
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.sweep import PROBLEM
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import limit

# Loads, as shares of what the first of the servers completes when it is never out of work.
SHARES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.15)
# Where that cannot be found.
_ELSE_PER_S = 40.0
_REQUESTS = 1000
# Requests at each load: the first ones of a longer trace.
MOST_REQUESTS = 5000
_ANY_RATE = 1.0


def load_job(name: str, files: Mapping[str, ScenarioFile]) -> "Job[GridScenario, Any]":
    """Return the job of the scenarios, by their names, at all loads: begun where these are others.

    Each takes the first ``MOST_REQUESTS``. The note of the job begins with the points:
    ``series``, ``rate`` and ``label``.
    """
    alike = {series: with_rate(_in_part(file), _ANY_RATE) for series, file in files.items()}
    base = next(iter(alike.values()))
    upload = given(base.workload.source)
    rates = rates_up_to(_saturation_per_s(base.model_dump_json(), *upload))
    pairs = list(product(alike, rates))
    points = [
        {"series": series, "rate": rate, "label": f"{series} at {rate:g} requests/s"}
        for series, rate in pairs
    ]
    trace = packed(base.workload.source)
    scenarios = [GridScenario(with_rate(alike[series], rate), trace) for series, rate in pairs]
    keys = [f"point {key}" for key in result_keys([one.file for one in scenarios])]
    return job_of(name, (points, scenarios), lambda: Job(simulate_point, scenarios, keys))


def _in_part(file: ScenarioFile) -> ScenarioFile:
    """Return a scenario with the requests that each load has."""
    requests = file.workload.requests
    if requests is None and file.workload.is_generated:
        return file
    part = {"requests": min(requests or MOST_REQUESTS, MOST_REQUESTS)}
    return file.model_copy(update={"workload": file.workload.model_copy(update=part)})


def finished_points(job: "Job[GridScenario, Any]") -> pd.DataFrame:
    """Return the points that have ended and could be, by their loads; show why others could not."""
    frame = points_frame(job.note[0], job.results)
    problems = frame.loc[frame[PROBLEM] != "", ["series", PROBLEM]].drop_duplicates()
    for row in problems.itertuples(index=False):
        st.error(": ".join(map(escaped, row)))
    return frame[frame[PROBLEM] == ""]


def limits_of_load(points: pd.DataFrame, share: float, now_per_s: float) -> list[str]:
    """Say of each series up to which load it meets the SLO for ``share`` of the requests.

    ``now_per_s`` is the load of today.
    """
    return [
        _limit(str(name), of, share, now_per_s) for name, of in points.groupby("series", sort=False)
    ]


def _limit(name: str, points: pd.DataFrame, share: float, now_per_s: float) -> str:
    ordered = points.sort_values("rate")
    holds = (ordered["slo_attainment"] >= share).cummin()
    lost = ordered.loc[~holds, "rate"]
    first = f"at {short(lost.min())} no longer" if len(lost) else "more was not tried"
    if not holds.any():
        least = short(ordered["rate"].min())
        return f"At {least} requests/s already, {name} misses the SLO."
    most = float(ordered.loc[holds, "rate"].max())
    now = f"today's load is {100 * now_per_s / most:.3g} % of that"
    return f"Up to {short(most)} requests/s {name} meets the SLO ({first}); {now}."


def rates_up_to(saturation_per_s: float) -> list[float]:
    """Return ``SHARES`` of a rate, to two digits, as far as the control of rates takes them."""
    control = CONTROLS["rate"]
    rates = (float(f"{share * saturation_per_s:.2g}") for share in SHARES)
    return list(dict.fromkeys(min(max(rate, control.low), control.high) for rate in rates))


@st.cache_resource(max_entries=64, show_spinner=False)
def _saturation_per_s(text: str, digest: str, _trace: Trace | None) -> float:
    file = ScenarioFile.model_validate_json(text)
    with TURNS.turn(Rank.REST_OF_PAGE, end_if_stale) as turn:
        try:
            uploaded = {file.workload.source: _trace} if _trace else None
            trace = all_at_once(limit(file.workload.trace(file.seed, uploaded), _REQUESTS))
            scenario = admitting_all(file.build(trace))
            run = run_once(trace, scenario, seed=file.seed, on_arrival=lambda _: turn.give_way())
            return completions_per_s(run, trace.source)
        except (ServetwinError, ArithmeticError):  # what cannot be, the page says by itself
            return _ELSE_PER_S
